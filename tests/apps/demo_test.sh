#!/usr/bin/env bash
# The demo passes its own checks, says what it measured, and fails when a page is swapped: demo_test.sh PROGRAM
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$program" demo --tokens 12 --json "$work/demo.json" > "$work/out" 2>&1 || { cat "$work/out"; exit 1; }
python3 - "$work/demo.json" << 'PYTHON'
import json, sys
summary = json.loads(open(sys.argv[1]).read().splitlines()[-1])
assert summary["summary"] and summary["texts_equal"], summary
declined = summary["reason"] == "below_cost" and summary["target"] != "avx512_amx"
assert declined or (summary["groups"] >= 2 and summary["depth"] >= 2 and summary["members"] == 16), summary
assert summary["tokens"] == 18 * 12, summary
assert declined or summary["kv_bytes_read_per_step"]["actual"] < summary["kv_bytes_read_per_step"]["flat"], summary
PYTHON
if "$program" demo --tokens 12 --inject-fault > "$work/out" 2>&1; then
  echo "the demo did not notice a swapped page"
  exit 1
fi
grep -q "differ" "$work/out"
echo "demo: all passed"
