#!/usr/bin/env bash
# Where nvcc is: compiles the CUDA back end for Hopper into build/cuda and runs its tests, which skip what needs a GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
command -v nvcc > /dev/null || [ -x "${CUDA_HOME:-/usr/local/cuda}/bin/nvcc" ] || { echo "cuda: no nvcc here, not compiled"; exit 0; }
cmake --preset cuda > /dev/null
# As for devices that are no Hopper: what stands in for its kernels.
for source in src/backend/cuda/{,*/}*.cc; do
  case $source in *_test.cc | */absent.cc) continue ;; esac
  g++ -std=c++20 -fsyntax-only -DFMT_SHARED -Isrc -isystem "${CUDA_HOME:-/usr/local/cuda}/include" "$source"
done
ninja -C build/cuda -j "$(nproc)" headwater_cuda headwater_attention_c bench_products test_cuda_policy test_cuda_unit
if ninja -C build/cuda -t query headwater_device_trace > /dev/null 2>&1; then # where CUPTI is
  ninja -C build/cuda headwater_device_trace
fi
ctest --test-dir build/cuda --output-on-failure -R '^cuda'
