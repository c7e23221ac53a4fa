#!/usr/bin/env bash
# The slow half of the correctness checks: sanitizers, 60 s of each fuzzer, and, where nvcc is, the CUDA sources.
set -euo pipefail
cd "$(dirname "$0")/.."
jobs=$(nproc)

echo "== AddressSanitizer + UndefinedBehaviorSanitizer: unit, conformance, simulation"
cmake --preset asan > /dev/null
ninja -C build/asan -j "$jobs"
HEADWATER_SCHEDULES=200 ctest --test-dir build/asan --output-on-failure -j "$jobs" -R 'unit|conformance|simulation|planner'

echo "== ThreadSanitizer: engine, thread pool"
cmake --preset tsan > /dev/null
ninja -C build/tsan -j "$jobs"
HEADWATER_SCHEDULES=100 ctest --test-dir build/tsan --output-on-failure -j "$jobs" -R 'engine|backend|cpu.unit|simulation'

echo "== fuzzers, 60 s each"
tools/fuzz.sh 60

if command -v nvcc > /dev/null && compgen -G "src/backend/cuda/*.cu" > /dev/null; then
  echo "== CUDA sources compile for sm_90a"
  cmake --preset release -B build/cuda -DHEADWATER_CUDA=ON > /dev/null
  ninja -C build/cuda -j "$jobs"
fi
echo "check: all passed"
