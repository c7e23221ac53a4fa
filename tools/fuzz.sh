#!/usr/bin/env bash
# Runs every fuzzer for SECONDS (default 10) from its kept corpus: tools/fuzz.sh [SECONDS]
# Builds them first (clang, ASan + UBSan). New finds go to build/fuzz/finds; the kept corpus is not changed.
set -euo pipefail
cd "$(dirname "$0")/.."
seconds=${1:-10}

export CC=${CC:-$(command -v clang-14 || command -v clang)} CXX=${CXX:-$(command -v clang++-14 || command -v clang++)}
cmake --preset fuzz -DCMAKE_CXX_COMPILER="$CXX" > /dev/null
targets=$(ninja -C build/fuzz -t targets all | sed -n 's/^\(fuzz_[a-z_]*\): phony$/\1/p' | sort -u)
[ -n "$targets" ] || { echo "no fuzzer is built" >&2; exit 1; }
# shellcheck disable=SC2086
ninja -C build/fuzz $targets

mkdir -p build/fuzz/finds
passed=0
for target in $targets; do
  corpus=tests/fuzz/corpus/${target#fuzz_}
  work=build/fuzz/corpus/${target#fuzz_}
  mkdir -p "$work"
  [ -d "$corpus" ] && cp -n "$corpus"/* "$work"/
  binary=$(find build/fuzz -type f -name "$target" -perm -u+x | head -1)
  limits=(-timeout=5)
  case $target in  # readers of files: no piece of memory above twice the input and 16 MiB
    fuzz_gguf | fuzz_safetensors | fuzz_config_json | fuzz_families | fuzz_tokenizer_json) limits+=(-malloc_limit_mb=17) ;;
  esac
  echo "fuzz: $target, $seconds s"
  if ! "$binary" "$work" -max_total_time="$seconds" -rss_limit_mb=4096 "${limits[@]}" -artifact_prefix=build/fuzz/finds/ \
      -print_final_stats=1 > "build/fuzz/$target.log" 2>&1; then
    tail -40 "build/fuzz/$target.log"
    echo "fuzz: $target FAILED; input under build/fuzz/finds" >&2
    exit 1
  fi
  grep -E "stat::number_of_executed_units" "build/fuzz/$target.log"
  passed=$((passed + 1))
done
echo "fuzz: $passed fuzzers passed, $seconds s each"
