#!/usr/bin/env bash
# Installs what the build and the tests need (Debian 12; Ubuntu 24.04 untried) and fetches the default model.
# Needs root; asks for sudo once when not root. Does nothing that is already done.
#   tools/setup.sh          compiler, libraries, Python for the model's download
#   tools/setup.sh --test   also clang with its sanitizer and fuzzer runtimes, valgrind, openssl, Python's venv
set -euo pipefail
cd "$(dirname "$0")/.."

packages=(g++ make cmake ninja-build ccache pkg-config python3 python3-pip
          libfmt-dev libspdlog-dev libcli11-dev libpcre2-dev libutf8proc-dev libssl-dev libyaml-cpp-dev prometheus-cpp-dev libgtest-dev libgmock-dev)
. /etc/os-release
case "${ID:-}-${VERSION_ID:-}" in
  debian-12) packages+=(libboost1.81-dev); clang=(clang-14 libclang-rt-14-dev) ;;
  *)         packages+=(libboost-dev); clang=(clang libclang-rt-18-dev) ;;
esac
[ "${1:-}" = --test ] && packages+=("${clang[@]}" valgrind python3-venv openssl)

missing=()
for package in "${packages[@]}"; do
  [ "$(dpkg-query -W -f='${Status}' "$package" 2>/dev/null)" = "install ok installed" ] || missing+=("$package")
done
if [ "${#missing[@]}" -gt 0 ]; then
  sudo=()
  if [ "$(id -u)" != 0 ]; then
    command -v sudo > /dev/null || { echo "run as root, or install: ${missing[*]}" >&2; exit 1; }
    sudo=(sudo)
  fi
  echo "installing: ${missing[*]}"
  "${sudo[@]}" apt-get update -qq
  DEBIAN_FRONTEND=noninteractive "${sudo[@]}" apt-get install -y -qq --no-install-recommends "${missing[@]}" > /dev/null
fi
tools/fetch_model.sh
