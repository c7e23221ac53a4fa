"""What the comparison with FlashInfer on an H200 must reach, and whether it does. Times in microseconds."""

import dataclasses
import statistics

from flashinfer_line import AUTO, INVARIANT, LAYERS, OFF
from headwater_attention import must_share

SEED_US = {"seed_b4_s2048": (12.5, 9.5), "seed_b8_s2048": (14, 11), "seed_b4_s8192": (20.5, 17),
           "seed_b8_s8192": (22, 18.5)}
SMALL_US = {"floor_b8_s128_t64": (7, 5), "private_b1_l256": (6.5, 4.5), "private_b1_l2048": (10.5, 8)}
SMALL_PRIVATE = ("private_b1_l256", "private_b1_l2048", "private_b1_l8192", "private_b8_l256")
PLAN_CELL, PLAN_US = "main_b64_s8192", (30, 10)
TAILS_CELL, TAILS_RATE = "private_b256_l256", (0.92, 0.97)
RUN_TFLOP_PER_S, RUN_ROWS_MIN, RUN_TOKENS_MIN, RUN_HEAD_DIM = (520, 650), 512, 8192, 128
# Time over limit: limits longer than so many us where reading dominates; any where matrix work is half of it or more.
MATRIX_TITLE = "ours / limit, matrix work at least half of reading"
LIMIT_CLASSES = {"ours / limit, limit over 100 us": (100, (1.2, 1.08)),
                 "ours / limit, limit over 30 us": (30, (1.35, 1.15)),
                 "ours / limit, limit over 12 us": (12, (1.5, 1.25)), MATRIX_TITLE: (float("inf"), (1.6, 1.3))}


@dataclasses.dataclass
class Check:
    name: str
    value: float | None  # None: not measured, or wrong
    must: float
    aim: float
    at_least: bool = False

    def reaches(self, bound):
        if self.value is None:
            return False
        return self.value >= bound if self.at_least else self.value <= bound


@dataclasses.dataclass
class Row:
    """One requirement: a check, or the same for many cells."""

    title: str
    checks: list
    digits: int = 2

    @property
    def grade(self):
        if not self.checks or all(check.value is None for check in self.checks):
            return "not measured"
        if not all(check.reaches(check.must) for check in self.checks):
            return "missed"
        return "aim" if all(check.reaches(check.aim) for check in self.checks) else "must"

    @property
    def missed(self):
        return [check for check in self.checks if not check.reaches(check.must)]

    @property
    def worst(self):
        """The check that is nearest to its must, or furthest past it."""
        known = [check for check in self.checks if check.value is not None]
        return max(known, key=lambda check: (check.must / max(check.value, 1e-9) if check.at_least else check.value / check.must),
                   default=None)


def at_most(name, value, bounds):
    return Check(name, value, *bounds)


def at_least(name, value, bounds):
    return Check(name, value, *bounds, at_least=True)


def mean(values):
    """Geometric; None if a value is missing or there is none."""
    values = list(values)
    return statistics.geometric_mean(values) if values and None not in values else None


def limit_class(line):
    """The title in LIMIT_CLASSES of a cell's time over its limit; None where the limit is too short to bind."""
    if line.limit_us is None:
        return None
    if line.cell.matrix_us >= line.read_us / 2:
        return MATRIX_TITLE
    return next((title for title, (above, _) in LIMIT_CLASSES.items() if line.limit_us > above), None)


def limit_rows(lines):
    return [Row(title, [at_most(line.cell.name, line.over_limit, bounds) for line in lines
                        if limit_class(line) == title]) for title, (_, bounds) in LIMIT_CLASSES.items()]


def time_row(title, lines, bounds):
    return Row(title, [at_most(name, lines[name].us(AUTO) if name in lines else None, bounds[name])
                       for name in bounds], digits=1)


def peer_rows(grid):
    shared = [line for line in grid if line.cell.shared]
    wrapper = mean(line.ratio(line.us("cascade_auto"), line.us(AUTO)) for line in shared)
    small = [line for line in grid if line.cell.name in SMALL_PRIVATE]
    return [
        Row("shared cells: FlashInfer's best arm / ours",
            [at_least(line.cell.name, line.peer_over_auto, (1, 1)) for line in shared]),
        Row("the same, geometric mean", [at_least("all", mean(line.peer_over_auto for line in shared), (1.4, 1.7))]),
        Row("its cascade wrapper as shipped / ours, geometric mean", [at_least("all", wrapper, (2.2, 2.7))]),
        Row("its best flat arm / ours with sharing off",
            [at_least(line.cell.name, line.flat_over_off, (0.98, 0.98)) for line in grid]),
        Row("the same, geometric mean", [at_least("all", mean(line.flat_over_off for line in grid), (1.03, 1.1))]),
        Row("the same, private cells of B 1 and B 8 x 256",
            [at_least(line.cell.name, line.flat_over_off, (1.1, 1.1)) for line in small]),
    ]


def kernel_rows(lines, by_name):
    runs = [line for line in lines if line.cell.stacked_rows >= RUN_ROWS_MIN and line.cell.shared >= RUN_TOKENS_MIN
            and line.cell.head_dim == RUN_HEAD_DIM and line.cell.tail == 1]
    tails = by_name.get(TAILS_CELL)
    plan = by_name.get(PLAN_CELL)
    return [
        Row("shared run, TFLOP/s",
            [at_least(line.cell.name, line.run_tflop_per_s, RUN_TFLOP_PER_S) for line in runs], 0),
        Row("tails, B 256 U 256: rate / rate of the read kernel",
            [at_least(TAILS_CELL, tails and tails.ratio(tails.read_us, tails.us(AUTO)), TAILS_RATE)]),
        Row("host time of plan and upload, B 64 S 8192, us",
            [at_most(PLAN_CELL, plan and plan.us(AUTO) and plan.arms[AUTO].get("plan_us"), PLAN_US)], digits=1),
    ]


def sharing_rows(grid):
    return [
        Row("path shared where B >= 4 and S >= 2048 (1: yes)",
            [at_least(line.cell.name, float(line.path == "shared"), (1, 1)) for line in grid if must_share(line.cell)],
            digits=0),
        Row(f"auto / off, each with 1/{LAYERS} of its plan",
            [at_most(line.cell.name, line.step_auto_over_off, (1.01, 1)) for line in grid]),
    ]


def rows(lines, grid_names):
    """All requirements. `lines` may hold cells beyond the grid; those count for the shared run only."""
    by_name = {line.cell.name: line for line in lines}
    grid = [line for line in lines if line.cell.name in grid_names]
    return [time_row("seed cells, us", by_name, SEED_US), *peer_rows(grid), *limit_rows(grid),
            *kernel_rows(lines, by_name), *sharing_rows(grid), time_row("small work, us", by_name, SMALL_US)]


def summary(lines, grid_names):
    """The last line of the record."""
    table = rows(lines, grid_names)
    names = [line.cell.name for line in lines]
    sharing = [line.ratio(line.us(OFF), line.us(AUTO)) for line in lines if must_share(line.cell)]
    return {"summary": True, "cells": len(lines),
            "missing": [name for name in grid_names if name not in names],
            "quoted": [line.cell.name for line in lines if line.quoted],
            "wrong": [f"{line.cell.name}: {fault}" for line in lines for fault in line.own_faults()],
            "missed": [row.title for row in table if row.grade == "missed"],
            "not_measured": [row.title for row in table if row.grade == "not measured"],
            "rows": [{"title": row.title, "grade": row.grade} | {"checks": [dataclasses.asdict(check)
                                                                            for check in row.checks]} for row in table],
            "geomean_off_over_auto_shared": mean(sharing),
            "geomean_invariant_over_auto": mean(line.ratio(line.us(INVARIANT), line.us(AUTO)) for line in lines)}
