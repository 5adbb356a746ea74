"""The shape of the house: sizes, directions of imports, one version, complete package lists."""

from __future__ import annotations

import ast
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from tests.tools.rust_source import functions

ROOT = Path(__file__).resolve().parents[2]
MAX_FILE_LINES = 500
MAX_FUNCTION_LINES = 60
MAX_TRITON_KERNEL_LINES = 150

#: What each Python package may import of octavo; a package may always import itself.
_BASE = {"errors", "faults", "log", "wire", "version"}
PYTHON_DIRECTION: dict[str, set[str]] = {
    "wire": {"errors", "__init__"},
    "actors": _BASE,
    "engine_core": _BASE | {"actors", "config", "kv_offload"},
    "kernels": {"errors"},
    "layers": {"errors", "kernels"},
    "models": {"errors", "kernels", "layers", "wire"},
    "modelfiles": {"errors", "models"},
    "workers": _BASE | {"actors", "devices", "kernels", "layers", "models", "modelfiles"},
    "llm": _BASE | {"actors", "config", "engine_core", "engine_settings", "modelfiles", "runfolder"},
    "batch": {"errors", "benchmarks"},
    "v1": set(),
    "client": {"errors", "v1"},
    "benchmarks": {"errors", "modelfiles", "config", "llm"},
    "cli": _BASE
    | {"batch", "benchmarks", "config", "llm", "memory", "modelfiles", "models", "replicas", "serve", "__init__"},
}
#: Packages that must never import torch, not even through another module.
NO_TORCH = ("wire", "v1", "actors", "engine_core", "llm", "modelfiles")

#: Rust layers, lowest first. A crate may depend on crates of lower layers and on those named beside it.
RUST_LAYERS: tuple[tuple[str, ...], ...] = (
    ("api", "hash", "wire", "tokenizer", "template", "grammar", "unify"),
    ("transport", "media", "parser", "telemetry"),
    ("render",),
    ("engine",),
    ("edge",),
    ("render-http",),
    ("http",),
    ("grpc",),
    ("server", "renderer", "mock", "python"),
)
RUST_PURE = ("api", "hash", "wire", "tokenizer", "template", "grammar", "parser", "render")
RUST_ASYNC = {"tokio", "hyper", "axum", "zeromq", "futures"}


def _generated(path: Path) -> bool:
    """Whether a file is made by a program: kept short by nobody."""
    return "generated" in path.parts or path.parent == ROOT / "python" / "v1"


def tracked(*patterns: str) -> list[Path]:
    """Return the files under version control (or not ignored) that match the patterns."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "--", *patterns]
    listed = subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout
    return [ROOT / name for name in listed.splitlines() if (ROOT / name).is_file()]


def test_files_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {count}"
        for path in tracked("*.py", "*.rs", "*.pyi")
        if not _generated(path) and (count := len(path.read_text(encoding="utf-8").splitlines())) > MAX_FILE_LINES
    ]
    assert not long, f"files over {MAX_FILE_LINES} lines"


def _python_functions(path: Path) -> list[tuple[str, int, bool]]:
    tree = ast.parse(path.read_text(encoding="utf-8"))
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            kernel = any("triton.jit" in ast.unparse(decorator) for decorator in node.decorator_list)
            found.append((node.name, (node.end_lineno or node.lineno) - node.lineno + 1, kernel))
    return found


def test_python_functions_are_short() -> None:
    long = [
        f"{path.relative_to(ROOT)}: {name}: {count}"
        for path in tracked("*.py")
        if not _generated(path)
        for name, count, kernel in _python_functions(path)
        if count > (MAX_TRITON_KERNEL_LINES if kernel else MAX_FUNCTION_LINES)
    ]
    assert not long, "long functions"


def test_rust_functions_are_short() -> None:
    files = tracked("*.rs")
    assert files
    long = [
        f"{path.relative_to(ROOT)}: {name}: {count}"
        for path in files
        if not _generated(path)
        for name, count in functions(path.read_text(encoding="utf-8"))
        if count > MAX_FUNCTION_LINES
    ]
    assert not long, "long functions"


def test_rust_function_reader_counts_lines() -> None:
    text = """fn a() {
  let s = "}{";
  // }
  if x { y('}') }
}
impl X {
  pub async fn b(&self, c: [u8; 4])
  where A: B,
  {
  }
  fn declared(&self) -> [u8; 2];
}
"""
    assert functions(text) == [("a", 5), ("b", 4)]


def _octavo_imports(path: Path) -> set[str]:
    found = set()
    for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
        names = []
        if isinstance(node, ast.Import):
            names = [alias.name for alias in node.names]
        elif isinstance(node, ast.ImportFrom) and node.module:
            deep = node.module == "octavo"
            names = [f"octavo.{alias.name}" for alias in node.names] if deep else [node.module]
        found |= {name.split(".")[1] for name in names if name.startswith("octavo.")}
    return found


@pytest.mark.parametrize("package", sorted(PYTHON_DIRECTION))
def test_python_imports_point_one_way(package: str) -> None:
    allowed = PYTHON_DIRECTION[package] | {package, "__version__"}
    wrong = [
        f"{path.relative_to(ROOT)} imports octavo.{name}"
        for path in tracked(f"python/{package}/*.py")
        for name in sorted(_octavo_imports(path) - allowed)
    ]
    assert not wrong


def test_every_python_package_has_a_direction() -> None:
    packages = {path.parent.relative_to(ROOT / "python").parts[0] for path in tracked("python/*/*.py")}
    assert packages == set(PYTHON_DIRECTION)


def test_no_torch_outside_workers() -> None:
    wrong = []
    for package in NO_TORCH:
        for path in tracked(f"python/{package}/*.py"):
            text = path.read_text(encoding="utf-8")
            if re.search(r"^\s*(import|from)\s+(torch|transformers)\b", text, re.MULTILINE):
                wrong.append(str(path.relative_to(ROOT)))
    assert not wrong


def test_resolving_a_model_loads_no_torch() -> None:
    modules = "octavo.modelfiles, octavo.engine_core, octavo.serve, octavo.llm"
    code = f"import {modules}, sys; sys.exit('torch' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def _crates() -> dict[str, dict[str, set[str]]]:
    cargo = shutil.which("cargo")
    if cargo is None:
        pytest.skip("cargo is not on this machine")
    command = [cargo, "metadata", "--format-version", "1", "--no-deps", "--offline"]
    metadata = json.loads(subprocess.run(command, cwd=ROOT, check=True, capture_output=True, text=True).stdout)
    crates: dict[str, dict[str, set[str]]] = {}
    for package in metadata["packages"]:
        runtime = {item["name"] for item in package["dependencies"] if item["kind"] is None}
        own = {name.removeprefix("octavo-") for name in runtime if name.startswith("octavo-")}
        crates[package["name"].removeprefix("octavo-")] = {"own": own, "other": runtime}
    return crates


def test_rust_dependencies_point_one_way() -> None:
    level = {name: index for index, layer in enumerate(RUST_LAYERS) for name in layer}
    crates = _crates()
    assert set(crates) <= set(level), "a crate without a layer"
    wrong = [
        f"{crate} -> {other}"
        for crate, depends in crates.items()
        for other in depends["own"]
        if level[other] >= level[crate]
    ]
    assert not wrong


def test_leaf_crates_are_synchronous() -> None:
    crates = _crates()
    wrong = {name: crates[name]["other"] & RUST_ASYNC for name in RUST_PURE if name in crates}
    assert not {name: found for name, found in wrong.items() if found}


def test_the_renderer_has_no_engine() -> None:
    crates = _crates()
    reached, open_ = set(), ["renderer"]
    while open_:
        name = open_.pop()
        if name not in reached:
            reached.add(name)
            open_ += sorted(crates[name]["own"])
    assert "render" in reached
    assert not reached & {"engine", "transport", "http", "mock", "python", "server"}
    other = {name for crate in reached for name in crates[crate]["other"]}
    assert not other & {"zeromq", "pyo3"}


def test_all_distributions_carry_one_version() -> None:
    from octavo import __version__

    assert tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"] == __version__
    for path in (
        "pyproject.toml",
        *(f"rust_frontend/{name}/pyproject.toml" for name in ("python", "server", "renderer")),
    ):
        project = tomllib.loads((ROOT / path).read_text())["project"]
        assert project["version"] == __version__, path
    depends = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["dependencies"]
    assert f"octavo-native=={__version__}" in depends
    assert f"octavo-frontend=={__version__}" in depends


def test_package_list_is_complete() -> None:
    listed = set(tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["setuptools"]["packages"])
    folders = {path.parent.relative_to(ROOT / "python") for path in tracked("python/*.py")}
    assert listed == {".".join(("octavo", *folder.parts)) for folder in folders}


def test_every_package_has_an_init() -> None:
    folders = {path.parent for path in tracked("python/*.py")}
    assert [str(folder) for folder in folders if not os.path.exists(folder / "__init__.py")] == []
