#!/usr/bin/env python3
"""Where the time of our attention goes on Hopper: what every stream of the kernel does when, for cells of the comparison.

  cmake --preset cuda -DHEADWATER_KERNEL_CLOCKS=ON && ninja -C build/cuda headwater_attention_c
  attention_timeline.py --out timelines main_b64_s8192 main_b64_s8192/64     the second one with 64 tokens of their own

For every cell the kernel runs some times with a cold L2, and the run of median length is shown: timeline_CELL.txt has times
of events, jobs by kind, a stream's time by phase and some blocks as lines of letters; timeline_CELL.svg all of them. A
summary goes to standard output. The same kernel is timed in CUDA graphs as flashinfer.py does it; with --plain, beside it
that of a build without clocks: where they differ by more than some percent, the clocks are part of what is seen.

Needs torch with CUDA and a build with HEADWATER_KERNEL_CLOCKS=ON. Exit code 1: an output is wrong, or the stamps
of a cell cannot be read; 2: something cannot run.
"""

import argparse
import dataclasses
import pathlib
import statistics
import sys

import attention_cell
import headwater_attention
import kernel_clocks
import timeline_report

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
GRIDS = ("flashinfer_grid.json", "flashinfer_runs.json")
CLOCKS, PLAIN = "with clocks", "plain"


def cells_of(names):
    """Cells of the grids by name; NAME/N has N tokens of each sequence's own."""
    known = {cell.name: cell for grid in GRIDS for cell in attention_cell.load(HERE / grid)}
    return [_cell_of(known, name) for name in names]


def _cell_of(known, text):
    name, _, tail = text.partition("/")
    if name not in known:
        raise attention_cell.CellError(f"no cell is called {name}; {' and '.join(GRIDS)} have them")
    if not tail:
        return known[name]
    if not tail.isdecimal():
        raise attention_cell.CellError(f"{text}: write NAME/N, N a number of tokens")
    return dataclasses.replace(known[name], name=f"{name}_t{tail}", tail=int(tail))


class Timelines:
    """Measures cells; what lives as long as the process."""

    def __init__(self, arguments):
        import torch  # here and not above: choosing cells needs no GPU

        import attention_problem
        import graph_timer
        import headwater_arms
        self._torch, self._problems, self._arms = torch, attention_problem, headwater_arms
        self._arguments, self._timer = arguments, graph_timer.GraphTimer(arguments.repeats)
        paths = {CLOCKS: arguments.library} | ({PLAIN: arguments.plain} if arguments.plain else {})
        self._libraries = {name: headwater_attention.Library(path.resolve()) for name, path in paths.items()}

    def cell(self, cell):
        """Measures, writes and prints one; whether its outputs were right."""
        self._torch.cuda.empty_cache()
        problem = self._problems.Problem(cell, self._arguments.layout)
        reference, planned, faults = problem.reference(), {}, []
        for name, library in self._libraries.items():
            planned[name] = self._arms.Planned(library, problem, self._arguments.sharing, self._arguments.invariant)
            planned[name].plan()
            _, wrong = self._problems.check_output(planned[name].run(), reference)
            faults += [f"{name}: {fault}" for fault in wrong]
        samples, failures = self._timer.measure({name: arm.run for name, arm in planned.items()})
        faults += [f"{name}: no graph: {why}" for name, why in failures.items()]
        run, lengths = self._median_run(planned[CLOCKS])
        us = {name: statistics.median(values) for name, values in samples.items()}
        head = "\n".join(self._head(cell, run, lengths, us, planned[CLOCKS].outcome(), faults))
        out = self._arguments.out / f"timeline_{cell.name}"
        out.with_suffix(".txt").write_text(f"{head}\n\n{timeline_report.report(run)}", encoding="utf-8")
        out.with_suffix(".svg").write_text(timeline_report.svg(run), encoding="utf-8")
        print("\n".join([head, *timeline_report.summary(run)]), flush=True)
        return not faults

    def _head(self, cell, run, lengths, us, outcome, faults):
        yield (f"{cell.name}: {cell.batch} sequences, {cell.shared} + {cell.tail} tokens, {cell.q_heads}/{cell.kv_heads} heads; "
               f"{outcome['path']}, {outcome['items']} items, {outcome['splits']} splits, predicted {outcome['predicted_us']} us; "
               f"products at {attention_cell.MATRIX_TFLOP_PER_S} TFLOP/s {cell.matrix_us:.1f} us")
        timed = ", ".join(f"{name} {value:.2f} us" for name, value in us.items())
        if len(us) == 2:
            timed += f" ({us[CLOCKS] / us[PLAIN] - 1:+.1%})"
        yield (f"  in graphs {timed}; first to last instruction {run.us:.2f} us, of runs "
               f"{timeline_report.spread(lengths)}; {run.clocks_us / 1e3:.3f} GHz, shared clock of {run.tick_ns} ns")
        yield from (f"  WRONG {fault}" for fault in faults)

    def _median_run(self, planned):
        """(the run of median length, us of all)."""
        memories = []
        for _ in range(self._arguments.runs):
            self._timer.run_cold(planned.run)
            memory, blocks = self._libraries[CLOCKS].stamps(kernel_clocks.WARPS * kernel_clocks.WARP_BYTES)
            memories.append(memory)
        return kernel_clocks.read(memories, blocks)


def is_right(timelines, cell):
    """Measures a cell; one whose stamps cannot be read does not keep the others from theirs."""
    try:
        return timelines.cell(cell)
    except kernel_clocks.ClocksError as failure:
        print(f"error: {cell.name}: {failure}", file=sys.stderr)
        return False


def count(text):
    if not text.isdecimal() or int(text) == 0:
        raise argparse.ArgumentTypeError(f"{text}: a number of 1 or more")
    return int(text)


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("cells", metavar="NAME[/TAIL]", nargs="+", help=f"cells of {' and '.join(GRIDS)}")
    parser.add_argument("--out", metavar="FOLDER", type=pathlib.Path, required=True)
    parser.add_argument("--library", metavar="PATH", type=pathlib.Path, help="a build with clocks",
                        default=ROOT / "build/cuda/src/backend/cuda/libheadwater_attention.so")
    parser.add_argument("--plain", metavar="PATH", type=pathlib.Path, help="a build without, timed beside it")
    parser.add_argument("--sharing", choices=headwater_attention.SHARING, default="auto")
    parser.add_argument("--invariant", action="store_true", help="the same bits whatever is shared")
    parser.add_argument("--layout", choices=("NHD", "HND"), default="NHD", help="of a page")
    parser.add_argument("--runs", metavar="N", type=count, default=5, help="of which the median one is shown (default 5)")
    parser.add_argument("--repeats", metavar="N", type=count, default=9, help="samples of each time in graphs (default 9)")
    return parser.parse_args(words)


def main(words):
    arguments = parse(words)
    try:
        cells = cells_of(arguments.cells)
        arguments.out.mkdir(parents=True, exist_ok=True)
        timelines = Timelines(arguments)
        return 0 if all([is_right(timelines, cell) for cell in cells]) else 1
    except (attention_cell.CellError, headwater_attention.AttentionError, ImportError, OSError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
