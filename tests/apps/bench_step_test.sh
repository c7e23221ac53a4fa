#!/usr/bin/env bash
# The step bench says what it measured, in figures that add up, and notices a swapped page: bench_step_test.sh PROGRAM
set -euo pipefail
program=$1
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

"$program" bench step --batch 2 --shared-tokens 64 --prompt-tokens 4 --max-tokens 4 --arms auto,off --reps 2 --prefill \
  --json - > "$work/lines" 2> "$work/err" || { cat "$work/err"; exit 1; }
python3 - "$work/lines" << 'PYTHON'
import json, sys
lines = [json.loads(line) for line in open(sys.argv[1])]
summary = lines.pop()
assert summary["summary"] and summary["texts_equal"], summary
assert set(summary) >= {"target", "backend", "threads", "memory_bytes_per_s", "multiply_adds_per_s",
                        "byte_multiply_adds_per_s", "model", "compiler"}, summary
assert summary["threads"] >= 1 and not any("summary" in line for line in lines)

arms = {line["arm"]: line for line in lines if "kind" not in line}
assert list(arms) == ["auto", "off"], arms
for arm in arms.values():
    assert (arm["batch"], arm["shared_tokens"], arm["prompt_tokens"], arm["max_tokens"]) == (2, 64, 4, 4), arm
    assert arm["prefill_tokens"] == 64 + 2 * 4, arm  # the prefix once
    assert arm["steps"] == 2 * 3, arm  # the first token of a repetition comes with the end of the prompt
    assert 0 < arm["decode_tokens_per_s_min"] <= arm["decode_tokens_per_s"] <= arm["decode_tokens_per_s_max"], arm
    assert arm["prefill_tokens_per_s"] > 0 and arm["step_ms"] > 0, arm
    assert set(arm) >= {"path", "groups", "members", "shared_pages"}, arm
assert arms["off"]["path"] == "flat" and arms["off"]["groups"] == 0, arms["off"]

for arm in arms:
    for phase in ("decode", "prefill"):
        rows = [line for line in lines if "kind" in line and (line["arm"], line["phase"]) == (arm, phase)]
        kinds = [row["kind"] for row in rows]
        assert len(kinds) == len(set(kinds)), kinds
        assert {"embed", "norm", "product 576 -> 960", "product 576 -> 49152", "rope+append", "attend", "merge", "gate",
                "gather", "sample", "host"} <= set(kinds), kinds
        assert all(row["ms"] > 0 and 0 < row["share"] < 1 for row in rows), rows
        assert all(row["bound"] in ("memory", "arithmetic", "-") for row in rows), rows
        assert all((row["bound_ms"] > 0) == (row["bound"] != "-") for row in rows), rows
        assert abs(sum(row["share"] for row in rows) - 1) < 1e-6, rows
        if phase == "decode":
            assert abs(sum(row["ms"] for row in rows) / arms[arm]["step_ms"] - 1) < 1e-6, rows
PYTHON

cell=(--batch 2 --shared-tokens 512 --prompt-tokens 4 --max-tokens 4)
"$program" bench step "${cell[@]}" --arms always,off > "$work/out" 2> "$work/err" || { cat "$work/err"; exit 1; }
grep -q "arm always: path shared, groups 1, members 2, pages attended once 16" "$work/out"
grep -q "texts of the arms equal" "$work/out"

if "$program" bench step "${cell[@]}" --arms auto,off --inject-fault > "$work/out" 2>&1; then
  echo "bench step did not notice a swapped page"
  exit 1
fi
grep -q "differ" "$work/out"
echo "bench step: all passed"
