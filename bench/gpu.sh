#!/usr/bin/env bash
# What runs on a GPU machine without network: kernel tests, then the kernel benchmark. `bench/gpu.sh OUT_FOLDER [PART ...]`.
# Needs python3 with torch, triton and pytest; octavo itself needs not be installed.
set -uo pipefail
out=$1
shift
root=$(cd "$(dirname "$0")/.." && pwd)
cd "$root"
links=$(mktemp -d)
ln -s "$root/python" "$links/octavo"
export PYTHONPATH="$links:$root" TRITON_INTERPRET=0 PYTHONUNBUFFERED=1
status=0
if [[ -z ${SKIP_TESTS:-} ]]; then
  timeout "${TEST_LIMIT:-240}" python3 -m pytest tests/kernels/triton -q -n "${WORKERS:-8}" -p no:cacheprovider -p no:benchmark -o timeout=200 \
    --tb=short > "$out/tests.log" 2>&1 || status=1
  grep -E '^(FAILED|ERROR|E  )|passed|failed|error' "$out/tests.log" | cut -c1-200 | head -60
fi
timeout "${BENCH_LIMIT:-330}" python3 -m bench.kernels --out "$out/h200_kernels.json" "$@" 2>&1 | tee "$out/bench.log" || status=1
exit $status
