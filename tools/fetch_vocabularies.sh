#!/usr/bin/env bash
# Fetches tokenizer vocabularies with texts and their expected ids, and chat templates, as the source package of
# llama-cpp-python (MIT) carries them, into models/vocabularies/ (78 MB): *.gguf, *.gguf.inp, *.gguf.out, templates/.
# The package's SHA-256 is checked. Does nothing when they are there already.
set -euo pipefail
cd "$(dirname "$0")/.."

package=llama-cpp-python==0.3.36
file=llama_cpp_python-0.3.36.tar.gz
sha256=832db0699007f1be95a7e41ef12e88926b02ba836461e36a36372db2760c1a2e
target=models/vocabularies

if [ "$(cat "$target/source.sha256" 2>/dev/null)" = "$sha256" ]; then exit 0; fi

mkdir -p models
work=$(mktemp -d models/fetch.XXXXXX)
trap 'rm -rf "$work"' EXIT
echo "fetching vocabularies and chat templates (77 MB) from the Python package $package"
# pip asks the package's build system for its metadata, which builds nothing.
python3 -m pip download --quiet --disable-pip-version-check --no-deps --no-binary llama-cpp-python --dest "$work" "$package"
if ! echo "$sha256  $work/$file" | sha256sum --check --status; then
  echo "$file: the SHA-256 of what was fetched is not $sha256; nothing was kept" >&2
  exit 1
fi
top=${file%.tar.gz}
tar -xzf "$work/$file" -C "$work" --wildcards "$top/vendor/llama.cpp/models/*" "$top/vendor/llama.cpp/LICENSE"
mv "$work/$top/vendor/llama.cpp/LICENSE" "$work/$top/vendor/llama.cpp/models/LICENSE"
echo "$sha256" > "$work/$top/vendor/llama.cpp/models/source.sha256"
rm -rf "$target"
mv "$work/$top/vendor/llama.cpp/models" "$target"
