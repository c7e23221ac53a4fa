#!/usr/bin/env bash
# Builds into build/release: everything, or the targets named. CUDA=1 asks for the CUDA back end.
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset release -DHEADWATER_CUDA="$([ "${CUDA:-0}" = 1 ] && echo ON || echo OFF)" > build.log 2>&1 || { cat build.log >&2; exit 1; }
rm -f build.log
[ "$#" = 0 ] || set -- --target "$@"
cmake --build build/release -j "$(nproc)" "$@"
