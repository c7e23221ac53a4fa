#!/usr/bin/env bash
# Builds everything into build/release (CUDA=1 adds the CUDA back end).
set -euo pipefail
cd "$(dirname "$0")/.."
cmake --preset release -DHEADWATER_CUDA="$([ "${CUDA:-0}" = 1 ] && echo ON || echo OFF)" > build.log 2>&1 || { cat build.log >&2; exit 1; }
rm -f build.log
cmake --build build/release -j "$(nproc)" "$@"
