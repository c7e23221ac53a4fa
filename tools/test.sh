#!/usr/bin/env bash
# Every correctness test: sets up, builds, runs ctest and then 10 s of each fuzzer.
set -euo pipefail
cd "$(dirname "$0")/.."
tools/setup.sh --test
tools/fetch_vocabularies.sh
tools/python_env.sh
tools/build.sh headwater  # as `make run` does
tools/build.sh
ctest --test-dir build/release --output-on-failure -j "$(nproc)"
tools/cuda_compile.sh
tools/fuzz.sh 10
echo "test: all passed"
