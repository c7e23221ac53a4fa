#!/usr/bin/env bash
# The slow half of the correctness checks: sanitizers, 60 s of each fuzzer, and, where nvcc is, the CUDA sources.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh --test
jobs=$(nproc)

# targets PRESET PATTERN: the test executables of a preset whose names match
targets() { ninja -C "build/$1" -t targets all | sed -n 's/^\(test_[a-z0-9_]*\): phony$/\1/p' | grep -E "$2"; }

echo "== AddressSanitizer + UndefinedBehaviorSanitizer: unit, planner, conformance, simulation"
cmake --preset asan > /dev/null
# shellcheck disable=SC2046
ninja -C build/asan -j "$jobs" $(targets asan '_unit$|server_(http|openai|metrics|threads)$|conformance|simulation|engine_|model_families|golden_(file|tokenizer|chat)')
ctest --test-dir build/asan --output-on-failure -j "$jobs" \
  -R 'unit$|server.(http|openai|metrics|threads)$|conformance|simulation|^engine|model.families|golden.(file|tokenizer|chat)'

echo "== ThreadSanitizer: engine, server and thread pool"
cmake --preset tsan > /dev/null
ninja -C build/tsan -j "$jobs" test_engine_threads test_engine_behaviour test_cpu_unit test_server_threads
ctest --test-dir build/tsan --output-on-failure -R '^(engine.(threads|behaviour)|server.threads)'
build/tsan/src/backend/cpu/test_cpu_unit --gtest_filter='ThreadPool*' --gtest_brief=1

echo "== fuzzers, 60 s each"
tools/fuzz.sh 60
ninja -C build/asan -j "$jobs" test_http_streams
build/asan/tests/http/test_http_streams --seconds 60

echo "== CUDA sources compile for sm_90a"
tools/cuda_compile.sh
echo "check: all passed"
