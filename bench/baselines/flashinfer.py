#!/usr/bin/env python3
"""Our attention and FlashInfer's on one GPU, in one process, arms interleaved: decode steps behind a shared prefix.

For every cell of the grid: six flat and four cascade arms of FlashInfer (flashinfer_arms.py), ours with sharing off, as
planned, and bit-invariant (headwater_arms.py), and a kernel that only reads the cell's unique bytes. All are checked
against fp32, then timed in CUDA graphs with a cold L2 (graph_timer.py); plans are made outside the graphs, and their
host time stands beside. The limit of a cell is the longer of that reading and its useful matrix work at 790 TFLOP/s.

  flashinfer.py --out part0.jsonl --shard 0/4          every arm; JSON lines are appended
  flashinfer.py --out ours.jsonl --arms headwater --replay part0.jsonl --cells seed
                                                       only ours again; FlashInfer's times are quoted from the file
  flashinfer_record.py part*.jsonl                     the record and its verdicts

Needs torch with CUDA, libheadwater_attention.so (a build with HEADWATER_CUDA=ON) and, for its arms, flashinfer-python
0.7.4. Exit code 1: one of our outputs, bits or paths is wrong; 2: something cannot run.
"""

import argparse
import dataclasses
import datetime
import json
import pathlib
import re
import statistics
import subprocess
import sys
import time

import attention_cell
import flashinfer_line
import headwater_attention

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parents[1]
PEERS = ("flat_decode_cuda", "flat_decode_tc", "flat_prefill_fa2", "flat_prefill_fa3", "flat_persistent", "flat_xqa",
         "cascade_auto", "cascade_fa2", "cascade_fa3", "cascade_manual")
READ_FLOOR = "read_floor"


def commit():
    words = ["git", "rev-parse", "--short", "HEAD"]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    return done.stdout.strip() or "unknown"


def command(words):
    """The words of a call, without the folders of files that lie outside the tree."""
    return " ".join(pathlib.PurePath(word).name if word.startswith("/") else word for word in words)


def without_folders(text):
    """A message whose absolute paths are file names."""
    return re.sub(r"/(?:[^/\s]+/)+", "", text)


def time_fields(samples):
    return {"us": round(statistics.median(samples), 2), "us_min": round(min(samples), 2),
            "us_max": round(max(samples), 2), "repeats": len(samples)}


class Bench:
    """Measures cells; what lives as long as the process."""

    def __init__(self, arguments, quoted):
        import torch  # here and not above: parsing and choosing cells needs no GPU

        import attention_problem
        import graph_timer
        self._torch, self._problems, self._timing = torch, attention_problem, graph_timer
        self._arguments, self._quoted = arguments, quoted
        self._timer = graph_timer.GraphTimer(arguments.repeats)
        self._ours = [arm for arm in headwater_attention.ARMS if re.search(arguments.arms, arm)]
        self._peers = [] if arguments.replay else [arm for arm in PEERS if re.search(arguments.arms, arm)]
        self._library = self._floor = None
        if self._ours:
            import headwater_arms
            self._arms = headwater_arms
            self._library = headwater_attention.Library(arguments.library.resolve())
            self._floor = headwater_arms.ReadFloor(self._library)
        if self._peers:
            import flashinfer_arms
            self._peer_arms, self._workspaces = flashinfer_arms, flashinfer_arms.Workspaces()
            flashinfer_arms.package()

    def meta(self):
        properties = self._torch.cuda.get_device_properties(0)
        version = self._peer_arms.package().__version__ if self._peers else None
        return {"call": True, "date": datetime.datetime.now().isoformat(timespec="minutes"),
                "commit": self._arguments.commit, "device": properties.name,
                "multiprocessors": properties.multi_processor_count, "torch": self._torch.__version__,
                "flashinfer": version, "command": command(sys.argv[1:]),
                "quoted_from": self._arguments.replay and self._arguments.replay.name}

    def _make(self, problem, name):
        if name in headwater_attention.ARMS:
            return self._arms.make(self._library, problem, name)
        return self._peer_arms.MAKERS[name](problem, self._workspaces)

    def _prepare(self, problem, name, reference):
        """(arm, fields of its record): planned and checked, not timed yet."""
        arm, fields = self._make(problem, name), {}
        if arm.plan:
            fields["plan_us"] = round(self._timing.host_us(arm.plan, arm.plan_before), 1)
        error, faults = self._problems.check_output(arm.run(), reference)
        if error is not None:
            fields["rel_err"] = float(f"{error:.2e}")
        fields |= arm.describe()
        fields["faults"] = fields.get("faults", []) + faults
        return arm, fields

    def cell(self, cell):
        """The line of one cell."""
        self._torch.cuda.empty_cache()
        problem = self._problems.Problem(cell, self._arguments.layout)
        reference, arms, works = problem.reference(), {}, {}
        if self._floor:
            works[READ_FLOOR] = self._floor.work(cell)
        for name in (*self._ours, *(peer for peer in self._peers if cell.shared or not peer.startswith("cascade"))):
            try:
                arm, arms[name] = self._prepare(problem, name, reference)
            except Exception as failure:  # an arm that cannot run is recorded; the others go on
                arms[name] = {"faults": [without_folders(f"{type(failure).__name__}: {failure}")[:500]]}
                continue
            works[name] = arm.run
        samples, failures = self._timer.measure(works)
        for name, values in samples.items():
            arms.setdefault(name, {"faults": []}).update(time_fields(values))
        for name, why in failures.items():
            arms.setdefault(name, {"faults": []})["faults"].append(f"no graph: {why}")
        floor = arms.pop(READ_FLOOR, {})
        return {"cell": dataclasses.asdict(cell), "layout": self._arguments.layout, "read_floor": floor,
                "matrix_us": round(cell.matrix_us, 2), "arms": self._quoted.get(cell.name, {}) | arms}


def quoted_arms(path, layout):
    """FlashInfer's arms of the cells of an earlier file, marked as quoted: {cell: {arm: fields}}."""
    lines = flashinfer_line.read([path], layout, lambda line: line.best("flat") and not line.quoted)
    return {line.cell.name: {name: fields | {"quoted": True} for name, fields in line.arms.items() if name in PEERS}
            for line in lines}


def measure(arguments, cells):
    """Whether all of ours was right."""
    began, right = time.monotonic(), True
    bench = Bench(arguments, quoted_arms(arguments.replay, arguments.layout) if arguments.replay else {})
    with arguments.out.open("a", encoding="utf-8") as out:
        write = lambda entry: print(json.dumps(entry), file=out, flush=True)
        write(bench.meta())
        for number, cell in enumerate(cells):
            if time.monotonic() - began > arguments.budget_s:
                print("not measured, the time is spent: " + ", ".join(late.name for late in cells[number:]))
                break
            entry = bench.cell(cell)
            write(entry)
            line = flashinfer_line.Line(entry)
            print(line.text(), flush=True)
            right = right and not line.own_faults()
    return right


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", metavar="FILE", type=pathlib.Path, required=True, help="JSON lines, appended")
    parser.add_argument("--grid", metavar="FILE", type=pathlib.Path, default=HERE / "flashinfer_grid.json",
                        help="cells (default flashinfer_grid.json; flashinfer_runs.json has those of the shared run)")
    parser.add_argument("--cells", metavar="REGEX", default=".", help="only cells with such a name")
    parser.add_argument("--arms", metavar="REGEX", default=".", help="only arms with such a name")
    parser.add_argument("--replay", metavar="FILE", type=pathlib.Path,
                        help="do not measure FlashInfer's arms, quote them from an earlier file")
    parser.add_argument("--shard", metavar="i/n", default="0/1", help="only part i of n, as 0/4")
    parser.add_argument("--budget-s", metavar="N", type=float, default=float("inf"),
                        help="begin no cell after this many seconds")
    parser.add_argument("--layout", choices=("NHD", "HND"), default="NHD", help="of a page")
    parser.add_argument("--repeats", metavar="N", type=int, default=9, help="samples of each arm (default 9)")
    parser.add_argument("--library", metavar="PATH", type=pathlib.Path,
                        default=ROOT / "build/release/libheadwater_attention.so")
    parser.add_argument("--commit", default=commit(), help="what was built (default: of this checkout)")
    return parser.parse_args(words)


def main(words):
    arguments = parse(words)
    try:
        cells = attention_cell.select(attention_cell.load(arguments.grid), arguments.cells, arguments.shard)
        if not cells:
            raise attention_cell.CellError(f"no cell of {arguments.grid} matches {arguments.cells}")
        return 0 if measure(arguments, cells) else 1
    except (attention_cell.CellError, headwater_attention.AttentionError, ImportError, OSError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
