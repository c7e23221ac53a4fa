#!/usr/bin/env bash
# Formatting of all C++ sources, and shell syntax. `tools/lint.sh --fix` formats in place.
set -euo pipefail
cd "$(dirname "$0")/.."
mode=(--dry-run --Werror)
[ "${1:-}" = --fix ] && mode=(-i)
git ls-files -z '*.h' '*.cc' '*.cu' '*.cuh' | xargs -0 clang-format "${mode[@]}"
for script in tools/*.sh .ci/run; do bash -n "$script"; done
echo "lint: clean"
