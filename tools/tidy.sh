#!/usr/bin/env bash
# clang-tidy with .clang-tidy over the sources of build/release.
set -euo pipefail
cd "$(dirname "$0")/.."
git ls-files 'src/*.cc' 'apps/*.cc' 'bench/*.cc' | grep -v -E '_(test|fuzz)\.cc$|_avx|_scalar' |
  xargs -P "$(nproc)" -n 4 clang-tidy -p build/release --quiet
