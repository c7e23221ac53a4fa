#!/usr/bin/env python3
"""Times several builds of our attention beside each other, cell by cell, in one process: what a change of the kernel gives.

  attention_builds.py before=OLD/libheadwater_attention.so after=build/cuda/src/backend/cuda/libheadwater_attention.so
  attention_builds.py --modes auto,off --cells seed_b4_s2048,main_b64_s8192/64 before=... after=...

Every build's output is checked against fp32, then all are timed in turn in CUDA graphs with a cold L2 (graph_timer.py). A
line a cell with microseconds, and at the end how many times as fast as the first build each other one is, as geometric mean,
least and most. Needs torch with CUDA. Exit code 1: an output is wrong; 2: something cannot run.
"""

import argparse
import pathlib
import statistics
import sys

import attention_cell
import attention_timeline
import headwater_attention


def ratios(cells, mode, first, other):
    """Of the first build's times and another's in a mode, a number a cell."""
    return [us[mode, first] / us[mode, other] for us in cells if (mode, first) in us and (mode, other) in us]


def summary(cells, mode, builds):
    """A line for each build but the first."""
    for other in builds[1:]:
        all_ratios = ratios(cells, mode, builds[0], other)
        if all_ratios:
            mean = statistics.geometric_mean(all_ratios)
            yield (f"{mode}: {other} {mean:.3f} x as fast as {builds[0]} over {len(all_ratios)} cells "
                   f"({min(all_ratios):.3f} to {max(all_ratios):.3f})")


class Builds:
    """Measures cells; what lives as long as the process."""

    def __init__(self, paths, modes, repeats):
        import torch  # here and not above: summaries need no GPU

        import attention_problem
        import graph_timer
        import headwater_arms
        self._torch, self._problems, self._arms = torch, attention_problem, headwater_arms
        self._libraries = {name: headwater_attention.Library(path.resolve()) for name, path in paths.items()}
        self._modes, self._timer = modes, graph_timer.GraphTimer(repeats)

    def cell(self, cell):
        """({(mode, build): us}, what is wrong)."""
        self._torch.cuda.empty_cache()
        problem = self._problems.Problem(cell, "NHD")
        reference, works, faults = problem.reference(), {}, []
        for mode in self._modes:
            for name, library in self._libraries.items():
                planned = self._arms.Planned(library, problem, mode, False)
                planned.plan()
                _, wrong = self._problems.check_output(planned.run(), reference)
                faults += [f"{mode}, {name}: {fault}" for fault in wrong]
                works[mode, name] = planned.run
        samples, failures = self._timer.measure(works)
        faults += [f"{mode}, {name}: no graph: {why}" for (mode, name), why in failures.items()]
        return {key: statistics.median(values) for key, values in samples.items()}, faults


def build_of(text):
    name, _, path = text.partition("=")
    if not name or not path:
        raise argparse.ArgumentTypeError(f"{text}: write NAME=PATH of a libheadwater_attention.so")
    return name, pathlib.Path(path)


def modes_of(text):
    modes = text.split(",")
    unknown = [mode for mode in modes if mode not in headwater_attention.SHARING]
    if unknown:
        raise argparse.ArgumentTypeError(f"{unknown[0]}: a mode is one of {', '.join(headwater_attention.SHARING)}")
    return modes


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("builds", metavar="NAME=PATH", nargs="+", type=build_of)
    parser.add_argument("--cells", metavar="NAMES", help="divided by commas, NAME/N with N own tokens (default: all of the grids)")
    parser.add_argument("--modes", type=modes_of, default=["auto"], help="of sharing (default auto)")
    parser.add_argument("--repeats", type=attention_timeline.count, default=5, help="samples of each time (default 5)")
    return parser.parse_args(words)


def main(words):
    arguments = parse(words)
    builds, is_right, measured = dict(arguments.builds), True, []
    try:
        names = arguments.cells.split(",") if arguments.cells else [
            cell.name for grid in attention_timeline.GRIDS for cell in attention_cell.load(attention_timeline.HERE / grid)]
        bench = Builds(builds, arguments.modes, arguments.repeats)
        for cell in attention_timeline.cells_of(names):
            us, faults = bench.cell(cell)
            measured.append(us)
            print(f"{cell.name:26s}" + "".join(f"  {mode} {name} {value:8.2f}" for (mode, name), value in us.items()), flush=True)
            for fault in faults:
                print(f"  WRONG {fault}", flush=True)
            is_right = is_right and not faults
    except (attention_cell.CellError, headwater_attention.AttentionError, ImportError, OSError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    for mode in arguments.modes:
        for line in summary(measured, mode, list(builds)):
            print(line)
    return 0 if is_right else 1


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
