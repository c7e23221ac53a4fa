"""What llama.cpp runs on a GPU: the cells of tools/gpu_steps.py, its arms, their commands and what they print.

A cell runs in two arms, the two ways in which llama.cpp keeps the KV of several sequences: `streams` (its default), a
part of the cache for each, into which a shared prompt is copied, and `one buffer` (-kvu), in which a shared prompt lies
once and every chat looks at all of it behind a mask. Single chats and prompts also run in llama-bench, the third arm.
Flash attention is on. Cells that differ in nothing but the number of chats run in one process.
"""

import dataclasses
import itertools
import json

REPEATS = 3  # their median counts, as in tools/gpu_steps.py
STREAMS, ONE_BUFFER, LLAMA_BENCH = ARMS = ("streams", "one buffer", "llama-bench")
PREFILL, DECODE = "prompt tokens/s", "ms a step"


class CellError(Exception):
    """A run printed something else than its cells ask for."""


@dataclasses.dataclass(frozen=True)
class Cell:
    ours: str  # name of the cell in h200-step.json
    model: str
    batch: int
    shared: int  # prompt tokens that all chats have in common
    prompt: int  # of each chat's own
    generate: int  # tokens decoded by each
    metric: str = DECODE
    ratio: float = None  # least ratio ours / theirs, in speed
    step_ms: float = None  # longest step of ours
    off_to_auto: float = None  # least ratio of our steps without and with sharing

    @property
    def group(self):
        return self.model, self.shared, self.prompt, self.generate

    @property
    def musts(self):
        texts = (("ratio {:g}", self.ratio), ("ours {:g} ms", self.step_ms), ("our off / auto {:g}", self.off_to_auto))
        return ", ".join(text.format(bound) for text, bound in texts if bound)


CELLS = (
    *(Cell(f"8B {model}, {batch} alone", f"8B {model}", batch, 0, 128, 64, ratio=ratio)
      for model, ratios in (("bf16", (1.1, 1.7, 1.8)), ("q8_0", (1.1, 1.8, 3.0)))
      for batch, ratio in zip((1, 16, 64), ratios)),
    # A shared prompt is llama.cpp's whole prompt, so its chats have no tokens of their own before they decode.
    Cell("8B bf16, 64 behind 8,192", "8B bf16", 64, 8192, 0, 64, step_ms=6, off_to_auto=1.8),
    Cell("8B bf16, prompts of 2,048", "8B bf16", 8, 0, 2048, 8, PREFILL, ratio=1.2),
    Cell("SmolLM2-135M Q4_1, 64 behind 2,048", "135M bf16", 64, 2048, 0, 64, step_ms=1.5))


@dataclasses.dataclass(frozen=True)
class Run:
    """One process: cells of one model in one arm."""
    arm: str
    cells: tuple

    @property
    def name(self):
        return f"{', '.join(cell.ours for cell in self.cells)} ({self.arm})"


def runs():
    every = []
    for _, group in itertools.groupby(CELLS, lambda cell: cell.group):
        cells = tuple(group)
        every += [Run(STREAMS, cells), Run(ONE_BUFFER, cells)]
    for model in ("8B bf16", "8B q8_0"):
        every.append(Run(LLAMA_BENCH, tuple(cell for cell in CELLS if cell.model == model and (
            cell.batch == 1 or cell.metric == PREFILL))))
    return every


def cache_tokens(cell, arm):
    """Tokens in llama.cpp's cache at the end of a cell."""
    return cell.shared * (1 if arm == ONE_BUFFER else cell.batch) + cell.batch * (cell.prompt + cell.generate)


def command(run, programs, model):
    """Its words. -dev CUDA0 makes a machine without a GPU an error and no slow result."""
    words = ["-m", model, "-dev", "CUDA0", "-ngl", 99, "-fa", "on", "-b", 2048, "-ub", 2048, "-t", 8]
    if run.arm == LLAMA_BENCH:
        prompts = [cell.prompt for cell in run.cells if cell.metric == PREFILL]
        answers = [cell.generate for cell in run.cells if cell.metric == DECODE]
        return [programs / "llama-bench", *words, "-p", *(prompts or [0]), "-n", *(answers or [0]), "-r", REPEATS,
                "-o", "jsonl"]
    cell, batches = run.cells[0], [cell.batch for cell in run.cells]
    # A stream has room for multiples of 256; one token of slack in each, for a dummy token follows copies of a prompt.
    stream = -(-(cell.shared + cell.prompt + cell.generate + 1) // 256) * 256
    copies = max(batches) * stream
    context = copies if run.arm == STREAMS else max(cache_tokens(cell, run.arm) for cell in run.cells)
    sharing = ["-pps"] if cell.shared else []
    return [programs / "llama-batched-bench", *words, "-npp", cell.shared + cell.prompt, "-ntg", cell.generate, "-npl",
            ",".join(str(batch) for batch in batches for _ in range(REPEATS)), "-c", context, *sharing,
            *(["-kvu"] if run.arm == ONE_BUFFER else []), "--output-format", "jsonl"]


def bench_samples(cell, lines):
    prompt, generate = (cell.prompt, 0) if cell.metric == PREFILL else (0, cell.generate)
    mine = [line for line in lines if (line["n_prompt"], line["n_gen"]) == (prompt, generate)]
    speeds = [speed for line in mine for speed in line["samples_ts"]]
    return speeds if cell.metric == PREFILL else [1e3 / speed for speed in speeds]


def batched_samples(cell, arm, lines):
    expected = (cell.shared + cell.prompt, cell.generate, cell.batch, cache_tokens(cell, arm))
    mine = [line for line in lines if (line["pp"], line["tg"], line["pl"], line["n_kv"]) == expected]
    return [line["speed_pp"] if cell.metric == PREFILL else 1e3 * line["t_tg"] / line["tg"] for line in mine]


def samples(run, cell, text):
    """What a run printed for a cell, REPEATS values in the unit of its metric."""
    lines = [json.loads(line) for line in text.splitlines() if line.startswith("{")]
    values = bench_samples(cell, lines) if run.arm == LLAMA_BENCH else batched_samples(cell, run.arm, lines)
    if len(values) != REPEATS:
        raise CellError(f"{REPEATS} results with {cache_tokens(cell, run.arm)} tokens in the cache expected, "
                        f"{len(values)} of {len(lines)} lines printed are such")
    return values
