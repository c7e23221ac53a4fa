#!/usr/bin/env bash
# Where nvcc is: compiles the CUDA back end for Hopper into build/cuda and runs its tests, which skip what needs a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v nvcc > /dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] || { echo "cuda: no nvcc here, not compiled"; exit 0; }
cmake --preset cuda > /dev/null
ninja -C build/cuda -j "$(nproc)" headwater_cuda headwater_attention_c test_cuda_policy test_cuda_unit
ctest --test-dir build/cuda --output-on-failure -R '^cuda'
