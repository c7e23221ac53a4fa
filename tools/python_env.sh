#!/usr/bin/env bash
# Installs the clients that the server is tested with (tests/server/requirements.txt, PyPI) into build/venv.
# Does nothing when they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."
wanted=$(sha256sum tests/server/requirements.txt)
[ "$(cat build/venv/requirements.sha256 2>/dev/null)" = "$wanted" ] && exit 0
echo "installing the clients of tests/server/requirements.txt into build/venv"
python3 -m venv --clear build/venv
build/venv/bin/pip install --quiet --disable-pip-version-check -r tests/server/requirements.txt
echo "$wanted" > build/venv/requirements.sha256
