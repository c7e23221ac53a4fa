#!/usr/bin/env bash
# The tests of the CUDA back end on a machine with an NVIDIA GPU: GoogleTest, compute-sanitizer on small shapes, a short
# bench. Writes h200-tests.{json,md}.
#
#   tools/gpu_test.sh [--build-dir DIR] [--out DIR] [--only tests|sanitizer|bench]
#
# --build-dir: existing binaries, a build folder or what tools/gpu_bundle.sh packed; else the preset `cuda` is built.
# --only: one part; what the record in --out says of the other parts of the same commit and device is kept.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1

# Small: every kind of work once, on shapes that a sanitizer gets through in seconds.
sanitizer_filter='*TwoSequencesOfOnePartialPageEach/cuda*:*EmptySequencesAndPaddedRows*/cuda*'
sanitizer_filter+=':*QMayBeASlice*/cuda*:*ASinkCountsOnce*/cuda*:*CopiedPages*/cuda*'
programs=(test_conformance_{attention,sharing,rope_append,matmul,elementwise,experts,sample} test_golden_families
  test_golden_model test_schedules_cuda test_cuda_unit)
sanitizer_filter+=':*SmallForSanitizers*:*SeveralWeights*/cuda*:*OneTokenAllExperts*/cuda*:*GatherRows*/cuda*:*ChoosesWhat*/cuda*'
sanitized=(test_conformance_{attention,matmul,elementwise,experts,sample} test_cuda_unit) # attention's rig appends too
tools=(memcheck racecheck initcheck synccheck)
# Seconds of a part; a command has what its part has left.
tests_seconds=${TESTS_SECONDS:-400}
sanitizer_seconds=${SANITIZER_SECONDS:-500}
bench_seconds=${BENCH_SECONDS:-300}

build='' out=docs/benchmarks only=''
while [ "$#" -gt 0 ]; do
  case "$1 ${2:-}" in
    "--build-dir "?*) build=$2 ;;
    "--out "?*) out=$2 ;;
    "--only tests" | "--only sanitizer" | "--only bench") only=$2 ;;
    *) sed -n '2,8p' "$0" | cut -c3- >&2; exit 2 ;;
  esac
  shift 2
done
nvidia-smi -L > /dev/null 2>&1 || { echo "gpu_test.sh: no NVIDIA GPU here (nvidia-smi -L)" >&2; exit 1; }

if [ -z "$build" ]; then
  build=build/cuda
  cmake --preset cuda > /dev/null || exit 1
  cmake --build --preset cuda -j "$(nproc)" --target headwater "${programs[@]}" || exit 1
fi
[ -d "$build/lib" ] && export LD_LIBRARY_PATH="$(realpath "$build/lib"):/usr/local/cuda/lib64${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}"
commit=$(cat "$build/COMMIT" 2> /dev/null || git rev-parse --short HEAD 2> /dev/null || echo unknown)
compiler=$(cat "$build/NVCC" 2> /dev/null || nvcc --version | grep release)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
status=0

program() { # NAME: its path, or a path that does not exist
  find "$build" -maxdepth 4 -name "$1" -type f -perm -u+x -print -quit | grep . || echo "$build/$1"
}
record() { # PART SECONDS TOOL COMMAND...
  python3 tools/gpu_record.py run --work "$work" --part "$1" --part-seconds "$2" --tool "$3" -- "${@:4}" || status=1
}
wanted() { [ -z "$only" ] || [ "$only" = "$1" ]; }

if wanted tests; then
  for name in "${programs[@]}"; do
    filter='*/cuda*:*Cuda*'
    [ "$name" = test_cuda_unit ] && filter='*'
    record tests "$tests_seconds" gtest "$(program "$name")" "--gtest_filter=$filter"
  done
fi
if wanted sanitizer; then
  for tool in "${tools[@]}"; do
    for name in "${sanitized[@]}"; do
      record sanitizer "$sanitizer_seconds" "$tool" compute-sanitizer --tool "$tool" --error-exitcode 86 \
        --print-limit 20 "$(program "$name")" "--gtest_filter=$sanitizer_filter"
    done
  done
fi
if wanted bench; then
  record bench "$bench_seconds" bench "$(program headwater)" bench attention --backend cuda --costs none --grid seed \
    --warm --commit "$commit" --max-seconds "$((bench_seconds * 3 / 4))" --json "$work/bench.json"
fi
python3 tools/gpu_record.py write --work "$work" --out "$out" --commit "$commit" --compiler "$compiler" || status=1
exit "$status"
