#!/usr/bin/env python3
"""Grids, the C binding, merging and verdicts of the comparison with FlashInfer, on made-up lines; needs no GPU."""

import contextlib
import ctypes
import io
import json
import pathlib
import re
import sys
import tempfile
import unittest

sys.dont_write_bytecode = True
import attention_cell
import flashinfer
import flashinfer_line
import flashinfer_record
import flashinfer_verdict
import headwater_attention
from flashinfer_line import AUTO, INVARIANT, OFF

HERE = pathlib.Path(__file__).resolve().parent
GRID = attention_cell.load(HERE / "flashinfer_grid.json")
NAMES = [cell.name for cell in GRID]
HEADER = HERE.parents[1] / "src/backend/cuda/c_interface.h"
CALL = {"call": True, "device": "NVIDIA H200", "commit": "abc", "date": "2026-11-30", "command": "--out x.jsonl",
        "torch": "2.11.0", "flashinfer": "0.7.4", "multiprocessors": 132}


def cell_of(name):
    return next(cell for cell in GRID if cell.name == name)


def timed(us, **fields):
    return {"us": us, "us_min": us * 0.99, "us_max": us * 1.01, "rel_err": 2e-3, "faults": []} | fields


def entry_of(cell, auto=None, off=None, flat=None, cascade=None, read=None, faults=()):
    """A line in which ours is at the limit, off a little slower, FlashInfer's flat arms at twice it, cascade thrice."""
    read = 1.5 + cell.unique_bytes / 4e6 if read is None else read
    limit = max(read, cell.matrix_us)
    auto = limit if auto is None else auto
    path = "shared" if headwater_attention.must_share(cell) else "flat"
    arms = {OFF: timed(off or 1.05 * auto, plan_us=8, outcome={"path": "flat"}),
            AUTO: timed(auto, plan_us=9, outcome={"path": path}) | {"faults": list(faults)},
            INVARIANT: timed(auto * 1.1, plan_us=9, outcome={"path": path}),
            "flat_xqa": timed(flat or 2 * limit), "flat_decode_tc": timed((flat or 2 * limit) + 1, plan_us=300)}
    if cell.shared:
        arms |= {"cascade_auto": timed(cascade or 3 * limit, backends=["fa2", "fa2"]),
                 "cascade_manual": timed((cascade or 3 * limit) - 0.5)}
    return {"cell": vars(cell), "layout": "NHD", "read_floor": {"us": read, "faults": []},
            "matrix_us": cell.matrix_us, "arms": arms}


def line_of(name, **changes):
    return flashinfer_line.Line(entry_of(cell_of(name), **changes), CALL)


def perfect_lines():
    runs = attention_cell.load(HERE / "flashinfer_runs.json")
    return [flashinfer_line.Line(entry_of(cell), CALL) for cell in [*GRID, *runs]]


class Grids(unittest.TestCase):
    def test_the_grid_has_shared_and_private_cells_of_every_shape(self):
        self.assertEqual((len(GRID), sum(cell.shared > 0 for cell in GRID)), (52, 39))
        self.assertEqual({cell.stacked_rows // cell.batch for cell in GRID}, {1, 3, 4, 7, 8})

    def test_a_cell_counts_each_token_of_its_sequences_once(self):
        cell = cell_of("seed_b8_s2048")
        self.assertEqual(cell.unique_bytes, (2048 + 8 * 256) * 4096)
        self.assertEqual((cell.pages, cell.piece_bytes, cell.stacked_rows), (64 + 8 * 8, 8192, 32))
        self.assertAlmostEqual(cell.matrix_us, 4 * 8 * 32 * 2304 * 128 / 790e6)

    def test_a_cell_that_cannot_be_built_is_named(self):
        good = vars(cell_of("seed_b8_s2048"))
        for change in ({"shared": 2047}, {"kv_heads": 5}, {"dtype": "float32"}, {"tail": 0}, {"batch": 0}):
            with self.subTest(change), self.assertRaisesRegex(attention_cell.CellError, "seed_b8_s2048"):
                attention_cell.Cell(**good | change)

    def test_a_name_twice_is_refused(self):
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump([vars(GRID[0]), vars(GRID[0])], file)
            file.flush()
            with self.assertRaisesRegex(attention_cell.CellError, "more than once"):
                attention_cell.load(file.name)

    def test_shards_hold_every_cell_once(self):
        parts = [attention_cell.select(GRID, shard=f"{index}/5") for index in range(5)]
        self.assertEqual(sorted(cell.name for part in parts for cell in part), sorted(NAMES))
        self.assertEqual([cell.name for cell in attention_cell.select(GRID, "^seed", "1/2")],
                         ["seed_b8_s2048", "seed_b8_s8192"])

    def test_a_shard_beyond_the_last_is_refused(self):
        for text in ("4/4", "1", "0/0", "-1/2"):
            with self.subTest(text), self.assertRaises(attention_cell.CellError):
                attention_cell.shard_of(text)

    def test_cells_of_the_shared_run_are_large_enough_for_its_verdict(self):
        for cell in attention_cell.load(HERE / "flashinfer_runs.json"):
            self.assertGreaterEqual(cell.stacked_rows, flashinfer_verdict.RUN_ROWS_MIN)


class Binding(unittest.TestCase):
    def test_structures_have_the_sizes_of_c(self):
        sizes = [ctypes.sizeof(kind) for kind in (headwater_attention.Config, headwater_attention.Kv,
                                                  headwater_attention.Outcome)]
        self.assertEqual(sizes, [40, 48, 64])

    @unittest.skipUnless(HEADER.exists(), "the CUDA back end's interface is not in this tree")
    def test_structures_have_the_fields_of_the_header(self):
        text = re.sub(r"/\*.*?\*/|//[^\n]*", "", HEADER.read_text(), flags=re.DOTALL)
        for name, kind in (("config", headwater_attention.Config), ("kv", headwater_attention.Kv),
                           ("outcome", headwater_attention.Outcome)):
            body = re.search(r"\{([^{}]*)\}\s*headwater_attention_" + name + r"\s*;", text)[1]
            fields = [word for declaration in body.split(";") for word in re.findall(r"(\w+)\s*(?:,|$)", declaration)]
            self.assertEqual(fields, [field for field, _ in kind._fields_])

    def test_an_outcome_names_its_path(self):
        outcome = headwater_attention.Outcome(path=1, members=8, predicted_us=10.123, reason=b"cheaper")
        fields = outcome.fields()
        self.assertEqual((fields["path"], fields["members"], fields["reason"]), ("shared", 8, "cheaper"))
        self.assertEqual(headwater_attention.Outcome(path=9).fields()["path"], "unknown 9")

    def test_a_library_that_is_not_there_says_how_to_get_it(self):
        with self.assertRaisesRegex(headwater_attention.AttentionError, "HEADWATER_CUDA"):
            headwater_attention.Library("/nowhere/libheadwater_attention.so")

    def test_an_arm_that_is_mislabelled_is_at_fault(self):
        faults = headwater_attention.path_faults
        big, small, private = (cell_of(name) for name in ("seed_b4_s2048", "main_b1_s2048", "private_b8_l2048"))
        self.assertEqual([faults(big, OFF, "flat"), faults(big, AUTO, "shared"), faults(big, AUTO, "flat"),
                          faults(small, AUTO, "flat"), faults(private, AUTO, "flat"), faults(big, INVARIANT, "flat")],
                         [[], [], [], [], [], []])
        for cell, arm, path in ((big, OFF, "shared"), (private, OFF, "mixed"), (private, AUTO, "shared")):
            with self.subTest((cell.name, arm, path)):
                self.assertEqual(len(faults(cell, arm, path)), 1)


class Lines(unittest.TestCase):
    def test_the_best_arm_is_the_fastest_one_without_a_fault(self):
        line = line_of("seed_b8_s2048", auto=10, flat=21, cascade=26.5)
        self.assertEqual((line.best("flat"), line.best("cascade")), ("flat_xqa", "cascade_manual"))
        self.assertAlmostEqual(line.peer_over_auto, 2.1)
        line.arms["flat_xqa"]["faults"] = ["relative error 1 against fp32"]
        self.assertEqual(line.best("flat", "cascade"), "flat_decode_tc")

    def test_a_wrong_arm_of_ours_has_no_time(self):
        line = line_of("seed_b8_s2048", faults=["the bits differ from those without sharing"])
        self.assertEqual((line.us(AUTO), line.peer_over_auto, line.over_limit), (None, None, None))
        self.assertIn("WRONG headwater_auto: the bits differ", line.text())

    def test_the_limit_is_the_longer_of_reading_and_matrix_work(self):
        self.assertAlmostEqual(line_of("main_b256_s32768", read=94).limit_us, cell_of("main_b256_s32768").matrix_us)
        self.assertAlmostEqual(line_of("main_b1_s2048", read=4).limit_us, 4)

    def test_a_step_counts_a_layers_part_of_the_plan(self):
        line = line_of("seed_b8_s2048", auto=10, off=10)
        self.assertAlmostEqual(line.step_auto_over_off, (10 + 9 / 32) / (10 + 8 / 32))

    def test_a_line_for_a_person_names_arms_and_ratios(self):
        text = line_of("seed_b8_s2048", auto=10, off=14, flat=21, cascade=26.5, read=7.8).text()
        for part in ("flat 21.0 xqa", "cascade 26.0 manual", "off 14.0", "auto 10.0", "path shared",
                     "FlashInfer/auto 2.10", "flat/off 1.50", "limit 7.8", "auto/limit 1.28", "err 2.0e-03"):
            self.assertIn(part, text)


class Verdicts(unittest.TestCase):
    def grades(self, lines):
        return {row.title: row.grade for row in flashinfer_verdict.rows(lines, NAMES)}

    def test_every_requirement_can_be_met(self):
        self.assertEqual({grade for grade in self.grades(perfect_lines()).values()} - {"aim", "must"}, set())
        summary = flashinfer_verdict.summary(perfect_lines(), NAMES)
        self.assertEqual([summary[name] for name in ("missed", "not_measured", "missing", "quoted", "wrong")], [[]] * 5)

    def test_every_requirement_can_be_missed(self):
        slow = []
        for line in perfect_lines():
            for fields in (line.arms[OFF], line.arms[AUTO]):
                fields |= {"us": fields["us"] * 8, "plan_us": 31}
            line.arms[AUTO] |= {"us": line.us(OFF) * 1.02, "outcome": {"path": "flat"}}
            slow.append(line)
        self.assertEqual({grade for grade in self.grades(slow).values()}, {"missed"})

    def test_nothing_measured_is_no_pass(self):
        self.assertEqual({grade for grade in self.grades([]).values()}, {"not measured"})
        self.assertEqual(flashinfer_verdict.summary([], NAMES)["missing"], NAMES)

    def test_one_slow_cell_is_named_and_misses_its_row(self):
        lines = perfect_lines()
        lines[0] = line_of("seed_b4_s2048", auto=13, flat=12.9, cascade=30)
        rows = {row.title: row for row in flashinfer_verdict.rows(lines, NAMES)}
        for title in ("seed cells, us", "shared cells: FlashInfer's best arm / ours"):
            self.assertEqual([check.name for check in rows[title].missed], ["seed_b4_s2048"])
        self.assertEqual(rows["the same, geometric mean"].grade, "aim")

    def test_a_mean_over_a_wrong_cell_is_not_measured(self):
        lines = perfect_lines()
        lines[0] = line_of("seed_b4_s2048", faults=["NaN"])
        grades = self.grades(lines)
        self.assertEqual(grades["its cascade wrapper as shipped / ours, geometric mean"], "not measured")
        self.assertEqual(grades["seed cells, us"], "missed")

    def test_the_bound_on_a_limit_follows_what_dominates(self):
        kinds = [flashinfer_verdict.limit_class(line_of(name, read=read)) for name, read in (
            ("private_b256_l2048", 233), ("main_b64_s2048", 33), ("seed_b4_s8192", 14.1), ("main_b256_s32768", 110))]
        self.assertEqual(kinds, list(flashinfer_verdict.LIMIT_CLASSES))
        self.assertIsNone(flashinfer_verdict.limit_class(line_of("seed_b4_s2048", read=6.4)))

    def test_cells_of_the_shared_run_count_in_no_other_row(self):
        lines = perfect_lines()
        lines[-1].arms[AUTO]["us"] *= 2
        grades = self.grades(lines)
        self.assertEqual([title for title, grade in grades.items() if grade == "missed"], ["shared run, TFLOP/s"])


class Records(unittest.TestCase):
    def write(self, folder, name, entries):
        path = pathlib.Path(folder) / name
        path.write_text("".join(json.dumps(entry) + "\n" for entry in entries))
        return path

    def record(self, *parts):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as errors:
            files = [str(self.write(folder, f"part{index}.jsonl", part)) for index, part in enumerate(parts)]
            base = pathlib.Path(folder) / "record"
            code = flashinfer_record.main([*files, "--out", str(base)])
            entries = [json.loads(text) for text in base.with_suffix(".json").read_text().splitlines()]
            return code, base.with_suffix(".md").read_text(), entries, errors.getvalue()

    def test_shards_merge_into_one_record(self):
        entries = [line.entry for line in perfect_lines()]
        code, page, record, errors = self.record([CALL, *entries[::2]], [CALL | {"command": "b"}, *entries[1::2]])
        self.assertEqual((code, errors, record[-1]["cells"], record[-1]["summary"]), (0, "", 56, True))
        self.assertIn("No must is missed.", page)
        self.assertIn("python3 bench/baselines/flashinfer.py b\n", page)
        self.assertIn("| seed_b4_s2048 | 4, 2048, 256 |", page)

    def test_the_last_complete_line_of_a_cell_counts(self):
        first, later = (entry_of(cell_of("seed_b8_s2048"), auto=us, flat=21, cascade=26) for us in (11, 10))
        alone = entry_of(cell_of("seed_b8_s2048"), auto=5)
        alone["arms"] = {name: fields for name, fields in alone["arms"].items() if name.startswith("headwater")}
        other = later | {"layout": "HND"}
        _, page, _, _ = self.record([CALL, first], [CALL, later, alone, other])
        self.assertIn("| 10.0 (9.9..10.1) |", page)
        self.assertIn("| 2.10 |", page)

    def test_a_record_says_what_is_missing_and_what_was_wrong(self):
        bad = entry_of(cell_of("seed_b8_s2048"), faults=["sharing is off, and the plan says shared"])
        code, page, record, errors = self.record([CALL, bad])
        self.assertEqual((code, len(record[-1]["missing"])), (1, 51))
        self.assertIn("Wrong: seed_b8_s2048: headwater_auto: sharing is off", errors)
        self.assertIn("- headwater_auto: sharing is off, and the plan says shared (seed_b8_s2048)", page)

    def test_quoted_times_are_marked_and_make_no_valid_record(self):
        with tempfile.TemporaryDirectory() as folder:
            path = self.write(folder, "earlier.jsonl", [CALL, entry_of(cell_of("seed_b8_s2048"), flat=21)])
            quoted = flashinfer.quoted_arms(path, "NHD")
        self.assertEqual(sorted(quoted["seed_b8_s2048"]),
                         ["cascade_auto", "cascade_manual", "flat_decode_tc", "flat_xqa"])
        entries = [line.entry for line in perfect_lines()]
        entries[1]["arms"] |= quoted["seed_b8_s2048"]
        code, page, _, errors = self.record([CALL, *entries])
        self.assertEqual(code, 1)
        self.assertIn("quoted from another process, no valid record: seed_b8_s2048", errors)
        self.assertIn("| seed_b8_s2048 (quoted) |", page)


class Commands(unittest.TestCase):
    def test_every_arm_of_flashinfer_can_be_made(self):
        makers = (HERE / "flashinfer_arms.py").read_text().split("MAKERS = {")[1]
        self.assertEqual(re.findall(r'^    "(\w+)": ', makers, re.MULTILINE), list(flashinfer.PEERS))

    def test_a_recorded_failure_names_no_folder(self):
        self.assertEqual(flashinfer.without_folders("RuntimeError: at /a/b-c/d.0/x.cu:63: bad / worse"),
                         "RuntimeError: at x.cu:63: bad / worse")

    def test_a_recorded_command_names_no_folder_outside_the_tree(self):
        self.assertEqual(flashinfer.command(["--out", "/somewhere/a.jsonl", "--grid", "bench/x.json"]),
                         "--out a.jsonl --grid bench/x.json")

    def run_main(self, *words):
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            return flashinfer.main(["--out", "/dev/null", *words]), errors.getvalue()

    def test_a_selection_of_no_cell_is_an_error(self):
        self.assertEqual(self.run_main("--cells", "^none$")[0], 2)
        code, errors = self.run_main("--shard", "3/2")
        self.assertEqual(code, 2)
        self.assertIn("0 <= i < n", errors)


if __name__ == "__main__":
    unittest.main()
