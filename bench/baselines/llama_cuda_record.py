"""The record of llama.cpp's CUDA back end beside ours: joins both sides' results, judges them, writes the page."""

import dataclasses
import statistics

import llama_cpp_build
import llama_cuda_source
from llama_cuda_cells import ARMS, CELLS, PREFILL, REPEATS


class RecordError(Exception):
    """The results of the two sides do not belong together."""


@dataclasses.dataclass(frozen=True)
class Verdict:
    cell: object
    arm: str = None  # llama.cpp's best
    theirs: float = None
    ours: float = None
    ratio: float = None  # of speeds, ours / theirs
    missed: list = None  # what was measured instead of each must that was missed; None: not measured

    @property
    def grade(self):
        if self.missed is None:
            return "**not measured**"
        return f"**missed**: {', '.join(self.missed)}" if self.missed else "yes"


def best_arm(cell, lines):
    """Name and median of the fastest arm, or None twice."""
    medians = {line["arm"]: statistics.median(line["samples"])
               for line in lines if line["cell"] == cell.ours and "samples" in line}
    if not medians:
        return None, None
    arm = (max if cell.metric == PREFILL else min)(medians, key=medians.get)
    return arm, medians[arm]


def our_value(cell, row):
    return row["prefill_tokens_per_s"] if cell.metric == PREFILL else 1e3 * row["batch"] / row["decode_tokens_per_s"]


def verdict(cell, lines, rows):
    arm, theirs = best_arm(cell, lines)
    ours = {row["arm"]: our_value(cell, row) for row in rows if row["cell"] == cell.ours}
    auto, off = ours.get("auto"), ours.get("off")
    if arm is None or auto is None or (cell.off_to_auto and off is None):
        return Verdict(cell, arm, theirs, auto)
    ratio = auto / theirs if cell.metric == PREFILL else theirs / auto
    missed = []
    if cell.ratio and ratio < cell.ratio:
        missed.append(f"ratio {ratio:.2f}")
    if cell.step_ms and auto > cell.step_ms:
        missed.append(f"ours {auto:.2f} ms")
    if cell.off_to_auto and off / auto < cell.off_to_auto:
        missed.append(f"our off / auto {off / auto:.2f}")
    return Verdict(cell, arm, theirs, auto, ratio, missed)


def number(value):
    return "-" if value is None else f"{value:,.0f}" if value >= 1000 else f"{value:.2f}"


def table(verdicts):
    rows = ["| cell | unit | llama.cpp | its best arm | ours | ratio of speeds | must | ok? |", "|---" * 8 + "|"]
    for each in verdicts:
        rows.append(f"| {each.cell.ours} | {each.cell.metric} | {number(each.theirs)} | {each.arm or '-'} "
                    f"| {number(each.ours)} | {number(each.ratio)} | {each.cell.musts} | {each.grade} |")
    return "\n".join(rows)


def spread(line):
    if line is None:
        return "-"
    if "error" in line:
        return "failed"
    values = line["samples"]
    return f"{number(statistics.median(values))} ({number(min(values))}..{number(max(values))})"


def arms_table(lines):
    found = {(line["cell"], line["arm"]): line for line in lines}
    rows = [f"| cell | unit | {' | '.join(ARMS)} |", "|---" * (len(ARMS) + 2) + "|"]
    for cell in CELLS:
        arms = " | ".join(spread(found.get((cell.ours, arm))) for arm in ARMS)
        rows.append(f"| {cell.ours} | {cell.metric} | {arms} |")
    return "\n".join(rows)


def failures(lines):
    return "".join(f"\n`{line['cell']}` failed in {line['arm']}: `{' '.join(line['error'].split())[-300:]}`\n"
                   for line in lines if "error" in line)


def judge(lines, ours):
    """Verdicts of every cell, from the lines of measure() and the content of h200-step.json."""
    summary = lines[-1] if lines else {}
    if not summary.get("summary"):
        raise RecordError("llama.cpp's results end without a summary: measure them again, to the end")
    if summary["device"] != ours["device"]:
        raise RecordError(f"llama.cpp ran on {summary['device']}, headwater on {ours['device']}: measure both on one "
                          "machine")
    return [verdict(cell, lines[:-1], ours["rows"]) for cell in CELLS]


def page(lines, ours, verdicts):
    """The Markdown page."""
    *lines, summary = lines
    options = " ".join(f"-D{name}={value}" for name, value in llama_cuda_source.OPTIONS.items())
    return f"""# Whole steps on a GPU beside llama.cpp

{summary['device']}, driver {summary['driver']}, {summary['date']}; ours at commit {ours['commit']}, from
`docs/benchmarks/h200-step.json`. The two sides can be compared where both were measured on one machine in one hour:

```
python3 bench/baselines/llama_cuda.py prepare && python3 bench/baselines/llama_cuda.py build
python3 bench/baselines/llama_cuda.py measure --out build/peers
tools/gpu_steps.py --headwater build/cuda/headwater --commit HASH
python3 bench/baselines/llama_cuda.py record build/peers/llama-cuda.jsonl
```

{table(verdicts)}

## Every arm of llama.cpp

Median (min..max) of {REPEATS} repetitions in one process.

{arms_table(lines)}
{failures(lines)}
- `streams`: its default, a part of the KV cache for each sequence; a shared prompt is copied into each. `one buffer`:
  `-kvu`, a shared prompt lies once. Both are `llama-batched-bench`, and the tokens in its cache are checked.
  `llama-bench` decodes from an empty cache.
- Behind a shared prompt its chats begin with no tokens of their own and ours with 32 or 64, which favours it. Its steps
  copy the logits to the host and choose no token; ours choose tokens.
- 8B: random weights on both sides. SmolLM2-135M: its file in Q4_1 on our side, random BF16 weights of its shape on
  theirs. KV cache: theirs f16, ours bf16.

## The peer

llama-cpp-python {llama_cpp_build.VERSION} (PyPI sdist, its llama.cpp tree), options `{options}`.
Instances of kernels that no cell reaches are left out and abort with their name when they are called; the others are as
in the sdist (`bench/baselines/llama_cuda_source.py`).
"""
