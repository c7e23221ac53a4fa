#!/usr/bin/env python3
"""Merges the JSON lines of calls of flashinfer.py into a record: a JSON file, and a Markdown page with verdicts.

  flashinfer_record.py part0.jsonl part1.jsonl ...

The last complete line of a cell counts. Exit code 1: a must is missed or not measured, one of our outputs was wrong, a
cell of the grid is missing, or FlashInfer's times were quoted from another process.
"""

import argparse
import json
import pathlib
import statistics
import sys

import attention_cell
import flashinfer_line
import flashinfer_verdict
from flashinfer_line import AUTO, INVARIANT, OFF

HERE = pathlib.Path(__file__).resolve().parent
GRADES = {"aim": "yes, aim", "must": "yes", "missed": "**missed**", "not measured": "**not measured**"}


def number(value, digits=1):
    return "-" if value is None else f"{value:,.{digits}f}" if value < 1000 else f"{value:,.0f}"


def markdown(heads, rows):
    lines = [f"| {' | '.join(heads)} |", "|---" * len(heads) + "|"]
    return "\n".join([*lines, *(f"| {' | '.join(row)} |" for row in rows)])


def spread(line, arm):
    if line.us(arm) is None:
        return "-"
    fields = line.arms[arm]
    return f"{number(fields['us'])} ({number(fields['us_min'])}..{number(fields['us_max'])})"


def named(line, prefix):
    arm = line.best(prefix)
    return f"{number(line.us(arm))} {arm.removeprefix(f'{prefix}_')}" if arm else "-"


def bounds(row):
    if not row.checks:
        return "-"
    texts = {f"{'>=' if check.at_least else '<='} {check.must:g} / {check.aim:g}" for check in row.checks}
    return texts.pop() if len(texts) == 1 else "by cell"


def measured(row):
    """The one value, or every value where bounds differ by cell, or the range of many and the worst cell."""
    values = [check.value for check in row.checks if check.value is not None]
    if not values or len(row.checks) == 1:
        return number(values[0], row.digits) if values else "-"
    if bounds(row) == "by cell":
        return ", ".join(f"{check.name} {number(check.value, row.digits)} (<= {check.must:g} / {check.aim:g})"
                         for check in row.checks)
    return (f"{number(min(values), row.digits)} to {number(max(values), row.digits)}, median "
            f"{number(statistics.median(values), row.digits)}, {len(row.checks)} cells; worst {row.worst.name}")


def verdict_table(rows):
    table = []
    for row in rows:
        missed = ", ".join(f"{check.name} {number(check.value, row.digits)}" for check in row.missed)
        grade = GRADES[row.grade] + (f": {missed}" if row.grade == "missed" and len(row.checks) > 1 else "")
        table.append((row.title, bounds(row), measured(row), grade))
    return markdown(("what", "must / aim", "measured", "reached?"), table)


def cell_table(lines):
    rows = []
    for line in lines:
        cell, plan = line.cell, line.arms.get(AUTO, {}).get("plan_us")
        theirs = line.best("flat", "cascade")
        limit = "matrix" if line.read_us and cell.matrix_us > line.read_us else "read"
        rows.append((cell.name + (" (quoted)" if line.quoted else ""), f"{cell.batch}, {cell.shared}, {cell.tail}",
                     named(line, "flat"), named(line, "cascade"), spread(line, OFF), spread(line, AUTO),
                     line.path or "-", number(line.peer_over_auto, 2), number(line.flat_over_off, 2),
                     f"{number(line.limit_us)} {limit}" if line.limit_us else "-", number(line.over_limit, 2),
                     number(line.us(INVARIANT)),
                     f"{number(plan)}, {number(line.arms.get(theirs, {}).get('plan_us'), 0)}",
                     "-" if line.rel_err is None else f"{line.rel_err:.1e}"))
    return markdown(("cell", "B, S, U", "FlashInfer's best flat", "its best cascade", "ours off", "ours auto", "path",
                     "its best / auto", "its flat / off", "limit", "auto / limit", "ours invariant",
                     "plan: auto, its best", "largest error"), rows)


def arm_table(lines, prefix):
    lines = [line for line in lines if line.best(prefix)]
    arms = list(dict.fromkeys(arm for line in lines for arm in line.arms if arm.startswith(prefix)))
    return markdown(("cell", *(arm.removeprefix(f"{prefix}_") for arm in arms)),
                    [(line.cell.name, *(number(line.us(arm)) for arm in arms)) for line in lines])


def reasons(lines):
    """Why an arm of FlashInfer has no time, each reason once."""
    found = {}
    for line in lines:
        for arm, fields in line.arms.items():
            for fault in fields["faults"]:
                found.setdefault((arm, fault.splitlines()[0][:160]), []).append(line.cell.name)
    return "\n".join(f"- {arm}: {fault} ({', '.join(cells)})" for (arm, fault), cells in found.items())


def calls_of(lines):
    """The calls whose lines count, each once."""
    return list({json.dumps(line.call): line.call for line in lines}.values())


def values(calls, name):
    return ", ".join(sorted({str(call.get(name, "unknown")) for call in calls if call.get(name) is not None}))


def findings(summary):
    sentences = {"missed": "Missed", "not_measured": "Not measured", "missing": "Cells of the grid that are missing",
                 "wrong": "Wrong", "quoted": "FlashInfer's times are quoted from another process, no valid record"}
    return [f"{sentence}: {'; '.join(summary[name])}." for name, sentence in sentences.items() if summary[name]]


def page(lines, summary, rows):
    calls = calls_of(lines)
    off_over_auto = number(summary["geomean_off_over_auto_shared"], 2)
    invariant_over_auto = number(summary["geomean_invariant_over_auto"], 3)
    flawed = reasons(lines)
    return f"""# Attention on a GPU: headwater and FlashInfer

- {values(calls, 'device')}, {values(calls, 'multiprocessors')} multiprocessors; pages {summary['layout']}
- headwater at commit {values(calls, 'commit')}
- FlashInfer {values(calls, 'flashinfer')}, torch {values(calls, 'torch')}
- measured {values(calls, 'date')}

```
{chr(10).join(f"python3 bench/baselines/flashinfer.py {call.get('command', '')}" for call in calls)}
python3 bench/baselines/flashinfer_record.py {summary['files']}
```

A cell is one decode step of one layer: B sequences share S tokens and own U tokens each. Times are microseconds of GPU
time with a cold L2: (A - B) / R from CUDA graphs, median (min..max) of interleaved samples of one process, plans made
outside. Offsets lie on the host and plans may size their grid by the lengths, which favours FlashInfer. Outputs are
checked against fp32, every sequence by itself.

{" ".join(findings(summary)) or "No must is missed."}

## Verdicts

{verdict_table(rows)}

- The limit of a cell is the longer of a kernel that only reads its unique bytes, timed among the arms, and its useful
  matrix work at {attention_cell.MATRIX_TFLOP_PER_S} TFLOP/s. Below 12 us it binds nothing; "small work" does.
- Shared run: work on the common tokens over the time of the whole cell, tails of one token: a lower bound.
- Off / auto over the cells that must share: geometric mean {off_over_auto}. Invariant / auto over all cells:
  {invariant_over_auto}; its bits are compared with those that it gives with sharing off.

## Cells

{cell_table(lines)}

## FlashInfer's flat arms

{arm_table(lines, 'flat')}

## FlashInfer's cascade arms

{arm_table(lines, 'cascade')}
{f"{chr(10)}Without a time:{chr(10)}{chr(10)}{flawed}{chr(10)}" if flawed else ""}"""


def main(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("files", nargs="+", metavar="FILE", type=pathlib.Path, help="JSON lines of flashinfer.py")
    parser.add_argument("--out", metavar="BASE", type=pathlib.Path,
                        default=HERE.parents[1] / "docs/benchmarks/h200-flashinfer", help="record without its suffix")
    parser.add_argument("--layout", default="NHD", choices=("NHD", "HND"))
    parser.add_argument("--grid", metavar="FILE", type=pathlib.Path, default=HERE / "flashinfer_grid.json")
    arguments = parser.parse_args(words)
    lines = flashinfer_line.read(arguments.files, arguments.layout, lambda line: line.complete)
    names = [cell.name for cell in attention_cell.load(arguments.grid)]
    rows = flashinfer_verdict.rows(lines, names)
    summary = flashinfer_verdict.summary(lines, names) | {
        "layout": arguments.layout, "files": " ".join(file.name for file in arguments.files)}
    entries = [*calls_of(lines), *(line.entry for line in lines), summary]
    arguments.out.with_suffix(".json").write_text("".join(json.dumps(entry) + "\n" for entry in entries))
    arguments.out.with_suffix(".md").write_text(page(lines, summary, rows))
    for finding in findings(summary):
        print(finding, file=sys.stderr)
    return 1 if findings(summary) else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
