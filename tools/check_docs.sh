#!/usr/bin/env bash
# Files and commands that documents name in `backticks` must exist.
set -uo pipefail
cd "$(dirname "$0")/.." || exit 1
missing=0
while IFS=: read -r document name; do
  case "$name" in
    *"<"*|*"*"*|*"{"*|build/*|models/*) continue ;;
  esac
  [ -e "$name" ] || [ -e "src/$name" ] || { echo "$document names $name, which is not there"; missing=$((missing + 1)); }
done < <(git ls-files '*.md' | xargs grep -oE '`[A-Za-z_.]+(/[A-Za-z0-9_.<>*{},-]+)+`' | tr -d '`' | sed 's/ .*//' | sort -u)
verbs=$(sed -n 's/^\([a-z]*\):.*##.*/\1/p' Makefile)
while IFS=: read -r document verb; do
  grep -qx "$verb" <<< "$verbs" || { echo "$document names make $verb, which is not a verb"; missing=$((missing + 1)); }
done < <(git ls-files '*.md' | xargs grep -oE '`make [a-z]+' | sed 's/`make //' | sort -u)
[ "$missing" = 0 ] && echo "docs: every file and verb that is named exists"
exit "$((missing > 0))"
