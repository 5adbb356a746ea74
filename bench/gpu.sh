#!/usr/bin/env bash
# What runs on a GPU machine without network: kernel tests, then the kernel benchmark. `bench/gpu.sh OUT_FOLDER [PART ...]`.
# `bench/gpu.sh OUT_FOLDER runner [ARGUMENT ...]`: tests of the runner against Transformers, then bench.runner.
# `bench/gpu.sh OUT_FOLDER stages [STAGE ...]`: tests against Transformers, then bench.gpu: what users of the library and of
# `octavo serve` get (its stage `serve` needs the program in $OCTAVO_FRONTEND).
# `bench/gpu.sh OUT_FOLDER crashes`: workers that are killed or have no memory left (needs the same program, httpx, openai, psutil).
# `bench/gpu.sh OUT_FOLDER control`: sleep, and weights lent on one GPU (needs the same, and googleapis-common-protos).
# Needs python3 with torch, triton and pytest (the runner also msgspec, pyzmq and octavo_native); octavo itself needs not
# be installed.
set -uo pipefail
out=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
links=$(mktemp -d)
ln -s "$root/python" "$links/octavo"
export PYTHONPATH="$links:$root${PYTHONPATH:+:$PYTHONPATH}" TRITON_INTERPRET=0 PYTHONUNBUFFERED=1
status=0
tests=tests/kernels/triton
[[ ${1:-} == runner || ${1:-} == stages ]] && tests="tests/kernels/triton/test_graphs.py tests/kernels/triton/test_state.py tests/kernels/triton/test_select.py tests/parity/test_gpu.py"
if [[ ${1:-} == crashes ]]; then
  # One test at a time: one takes all of the GPU's memory.
  timeout "${TEST_LIMIT:-240}" python3 -m pytest tests/e2e/test_gpu_crashes.py -q -p no:cacheprovider -p no:benchmark \
    --tb=short 2>&1 | tee "$out/crashes.log" || status=1
  exit $status
fi
if [[ ${1:-} == control ]]; then
  timeout "${TEST_LIMIT:-240}" python3 -m pytest tests/unit/workers/test_cuda_ipc.py tests/e2e/test_gpu_sleep.py -q -s -p no:cacheprovider \
    -p no:benchmark --tb=short 2>&1 | tee "$out/control.log" || status=1
  exit $status
fi
if [[ -z ${SKIP_TESTS:-} ]]; then
  timeout "${TEST_LIMIT:-240}" python3 -m pytest $tests -q -n "${WORKERS:-8}" -p no:cacheprovider -p no:benchmark -o timeout=200 \
    --tb=short > "$out/tests.log" 2>&1 || status=1
  grep -E '^(FAILED|ERROR|E  )|passed|failed|error' "$out/tests.log" | cut -c1-200 | head -60
fi
if [[ ${1:-} == runner ]]; then
  shift
  timeout "${BENCH_LIMIT:-330}" python3 -m bench.runner --out "$out/h200_runner.json" "$@" 2>&1 | tee "$out/bench.log" || status=1
  exit $status
fi
if [[ ${1:-} == stages ]]; then
  shift
  timeout "${BENCH_LIMIT:-540}" python3 -m bench.gpu --out "$out/h200.json" "$@" 2>&1 | tee "$out/bench.log" || status=1
  exit $status
fi
timeout "${BENCH_LIMIT:-330}" python3 -m bench.kernels --out "$out/h200_kernels.json" "$@" 2>&1 | tee "$out/bench.log" || status=1
exit $status
