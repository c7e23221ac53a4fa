#!/usr/bin/env bash
# Packs the binaries of tools/gpu_test.sh and their shared libraries, but for those of glibc, GCC, the CUDA toolkit and the driver, into
# one folder for a machine that lacks the libraries: tools/gpu_bundle.sh [BUILD_DIR [FOLDER]], build/cuda into .gpu.
# There, with a GCC that is not older: tools/gpu_test.sh --build-dir .gpu
set -euo pipefail
cd "$(dirname "$0")/.."
build=${1:-build/cuda} folder=${2:-.gpu}
names=(headwater test_conformance_{attention,sharing,rope_append,matmul,elementwise,experts,sample} test_golden_families
  test_golden_model test_schedules_cuda test_cuda_unit)
theirs='/(ld-linux[^/]*|lib(c|m|dl|rt|pthread|resolv|util|stdc\+\+|gcc_s|cuda|cublasLt|nvidia-ml))\.so[^/]*$' # that machine's own

rm -rf "$folder"
mkdir -p "$folder/lib"
for name in "${names[@]}"; do
  binary=$(find "$build" -name "$name" -type f -perm -u+x -print -quit)
  [ -n "$binary" ] || { echo "gpu_bundle.sh: $build has no $name; build it first" >&2; exit 1; }
  libraries=$(ldd "$binary" | sed -n 's/.* => \(\/[^ ]*\).*/\1/p' | grep -Ev "$theirs" || true)
  [ -z "$libraries" ] || xargs cp -Lu -t "$folder/lib" <<< "$libraries"
  strip --strip-debug -o "$folder/$name" "$binary"
done
git rev-parse --short HEAD > "$folder/COMMIT"
nvcc --version | grep release > "$folder/NVCC"
du -sh "$folder"
