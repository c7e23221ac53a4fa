#!/usr/bin/env python3
"""Steps, gaps and reports of tools/device_idle.py, on made-up traces; needs no GPU."""
import contextlib
import io
import json
import pathlib
import stat
import sys
import tempfile
import unittest
from unittest import mock

sys.dont_write_bytecode = True
import device_idle
import device_trace

GRAPH, OTHER = 7, 9
KERNEL = "void headwater::backend::cuda::(anonymous namespace)::scan_rows<float, 4>(headwater::backend::cuda::Call)"


class Device:
    """Writes a trace; times in us, `at` is where the next record begins unless it is told."""

    def __init__(self):
        self.at, self.launch, self.lines = 1000.0, 0, []

    def runs(self, kind, us, name, graph=0, gap=0.0, stream=1):
        begin = self.at + gap
        self.at = max(self.at, begin + us)
        self.lines.append(f"{kind}\t{begin * 1e3:.0f}\t{(begin + us) * 1e3:.0f}\t{stream}\t{graph}\t{self.launch}\t{name}")

    def launches(self, us=100, graph=GRAPH, gap=0.0, kernels=()):
        """A graph as one record, or as kernels: (us, name, gap)."""
        self.launch += 1
        if not kernels:
            self.runs("graph", us, "graph", graph, gap)
        for number, (kernel_us, name, kernel_gap) in enumerate(kernels):
            self.runs("kernel", kernel_us, name, graph, kernel_gap + (gap if number == 0 else 0))

    def decodes(self, steps, upload_gap=2.0, kernels=()):
        """Steps as the engine makes them: upload, graph, sampling, download."""
        for _ in range(steps):
            self.runs("copy", 1, "copy to device", gap=upload_gap)
            self.launches(gap=1, kernels=kernels)
            self.launch += 1
            self.runs("copy", 1, "copy to device", gap=1)
            self.runs("kernel", 5, KERNEL, gap=1)
            self.runs("copy", 1, "copy to host", gap=1)

    def prompts(self):
        self.runs("kernel", 900, "prompt", gap=400)

    def written(self, dropped=0, untimed=0):
        return [*self.lines, f"end\t{len(self.lines)}\t{dropped}\t{untimed}"]

    def report(self, **more):
        return device_trace.report(device_trace.read(self.written(**more)))


def decoding(steps=50, **more):
    device = Device()
    device.decodes(steps, **more)
    return device


def most(report, name):
    return report["us_a_step"][name]["max"]


class Reading(unittest.TestCase):
    def refusal(self, lines):
        with self.assertRaises(device_trace.TraceError) as caught:
            device_trace.report(device_trace.read(lines))
        return str(caught.exception)

    def test_a_trace_that_says_nothing_is_refused_with_the_reason(self):
        self.assertIn("is empty", self.refusal(["end\t0\t0\t0"]))
        self.assertIn("no last line", self.refusal([]))
        self.assertIn("no last line", self.refusal(decoding().lines))
        self.assertIn("says 250: was the disk full", self.refusal(decoding().written()[2:]))
        self.assertIn("line 1 of the trace is no record: 'graph\\t1'", self.refusal(["graph\t1"]))
        self.assertIn("no steady decoding", self.refusal(decoding(steps=20).written()))

    def test_engines_that_take_turns_are_no_steady_decoding(self):
        device = Device()
        for graph in (GRAPH, OTHER) * 50:
            device.launches(graph=graph)
        self.assertIn("no steady decoding", self.refusal(device.written()))

    def test_a_kernel_s_name_is_told_without_what_surrounds_it(self):
        self.assertEqual(device_trace.short(KERNEL), "scan_rows")
        self.assertEqual(device_trace.short("nvjet_hsh_64x8_64x16_v_bz_TNN"), "nvjet_hsh_64x8_64x16_v_bz_TNN")
        self.assertEqual(device_trace.short("scan(int)"), "scan")

    def test_records_that_were_lost_are_told(self):
        report = decoding().report(dropped=3, untimed=4)
        self.assertEqual((report["dropped"], report["untimed"]), (3, 4))


class Steps(unittest.TestCase):
    def test_a_step_lasts_from_launch_to_launch(self):
        report = decoding().report()  # 100 graph, gaps 1, 1, 1, 2, 1, copies 1, 1, 1, sampling 5
        self.assertEqual(report["mode"], "graphs")
        for name, us in {"period": 114, "computes": 105, "only copies": 3, "idle": 6, "computes nothing": 9,
                         "idle between launches": 6, "idle inside launches": 0}.items():
            self.assertEqual(most(report, name), us, name)
            self.assertEqual(report["us_a_step"][name]["median"], us, name)
        self.assertEqual(sum(count for _, count in report["histogram"]), 5 * report["steps"])

    def test_prompts_other_graphs_and_ends_of_repetitions_are_no_steady_steps(self):
        device = Device()
        for _ in range(40):  # a stopwatch: many launches, but never many in a row without its spinning kernel
            device.runs("kernel", 300, "spin")
            device.launches(graph=OTHER)
        for _ in range(3):
            device.prompts()
            device.decodes(50)
        for _ in range(21):  # a kind of work alone, again and again
            device.launches(us=10, graph=OTHER + 1)
        report = device.report()
        self.assertEqual((report["stretches"], report["steps"], report["edges"]["steps"]), (3, 3 * (49 - 4), 3 * 4))
        self.assertEqual(report["other_steps"], 3)  # into the prompts, and into what comes last
        self.assertEqual(most(report, "idle"), 6)

    def test_a_gap_where_the_host_does_not_run_ahead_yet_is_told_apart(self):
        device = decoding(steps=1)
        device.decodes(1, upload_gap=300)
        device.decodes(50)
        report = device.report()
        self.assertEqual((report["edges"]["longest_idle_us"], report["gaps"]["idle"]["longest_us"]), (300, 2))


class Gaps(unittest.TestCase):
    def test_a_gap_of_25_us_is_above_the_limit_and_has_its_place(self):
        device = decoding(steps=30)
        device.decodes(1, upload_gap=25)
        device.decodes(30)
        report = device.report()
        self.assertEqual(report["gaps"]["idle"], {"longest_us": 25, "over_limit": 1})
        self.assertEqual({key: report["longest"][0][key] for key in ("us", "after", "before", "where", "step")},
                         {"us": 25, "after": "copy to host", "before": "copy to device", "where": "between", "step": 29 - 2})
        self.assertEqual([count for least, count in report["histogram"] if least == 20], [1])

    def test_a_copy_inside_a_gap_is_not_idle_and_computes_nothing(self):
        device = Device()
        for _ in range(40):
            device.launches()
            device.runs("copy", 8, "copy to device", gap=8)
            device.at += 8
        report = device.report()
        self.assertEqual((most(report, "idle"), most(report, "only copies"), most(report, "computes nothing")), (16, 8, 24))
        self.assertEqual(report["gaps"]["idle"], {"longest_us": 8, "over_limit": 0})
        self.assertEqual(report["gaps"]["computes nothing"], {"longest_us": 24, "over_limit": report["steps"]})

    def test_a_copy_beside_a_graph_takes_no_time_of_the_step(self):
        device = Device()
        for _ in range(40):
            begin = device.at
            device.launches()
            device.at = begin
            device.runs("copy", 103, "copy to device", gap=-1, stream=2)  # ends 2 us after the graph
            device.at += 3
        report = device.report()
        self.assertEqual((most(report, "only copies"), most(report, "idle")), (3, 2))

    def test_a_copy_that_began_in_the_step_before_still_counts_and_is_no_other_work(self):
        device = Device()
        for number in range(40):
            device.launches()
            end = device.at
            device.runs("copy", 130 if number % 2 else 15, "copy to device", stream=2, gap=-10)  # 130: past the next launch
            device.at = end + 5 * (number % 2 == 0)
        report = device.report()
        self.assertEqual((report["steps"], report["stretches"]), (39 - 4, 1))
        self.assertEqual((most(report, "idle"), most(report, "only copies")), (0, 5))

    def test_kernels_that_overlap_leave_no_gap_and_count_once(self):
        kernels = ((40, "norm", 0), (50, "attend", -10), (30, "product", 4), (5, "merge", 0.5), (20, "tail", 0), (5, "short", -10))
        report = decoding(kernels=kernels).report()
        self.assertEqual(report["mode"], "kernels")
        self.assertEqual(most(report, "idle inside launches"), 4.5)
        self.assertEqual(most(report, "idle between launches"), 6)
        self.assertEqual(most(report, "computes"), 40 + 40 + 30 + 5 + 20 + 5)
        self.assertEqual(report["alone"][0], {"name": "the graph", "a_step": 1, "us": 40 + 40 + 4 + 30 + 0.5 + 5 + 20})
        largest = report["longest"][0]
        self.assertEqual([largest[key] for key in ("us", "after", "before", "where")], [4, "attend", "product", "inside"])
        pairs = [[pair[key] for key in ("where", "after", "before", "a_step", "us_a_step", "longest_us")] for pair in report["pairs"]]
        self.assertEqual(pairs[0], ["between", "copy to host", "copy to device", 1, 2, 2])
        self.assertEqual(pairs[-2:], [["inside", "attend", "product", 1, 4, 4], ["inside", "product", "merge", 1, 0.5, 0.5]])


class Telling(unittest.TestCase):
    FACTS = {"device": "H", "driver": "1", "commit": "c", "date": "d"}

    def row(self, cell="C", mode="graphs", **more):
        return {"cell": cell, "command": "bench", "step_ms": {"untraced": 1.0, "traced": 1.05}} | decoding().report(**more) | {"mode": mode}

    def test_a_report_has_its_numbers_and_what_the_trace_cost(self):
        text = "\n".join(device_idle.lines_of(self.row(dropped=3)))
        for words in ("45 steps (stretches: 1)", "1.000 ms without the trace and 1.050 ms with it (+5.0%)", "dropped 3 records",
                      "| idle | 6.0 | 6.0 | 6.0 | 6.0 |", "| copy to host | copy to device | between | 1.0 | 2.0 | 2.0 |",
                      "| scan_rows | 1.0 | 5.0 |",
                      "above      1 us       45 #"):
            self.assertIn(words, text)
        self.assertNotIn("longest idle gaps", text)

    def test_gaps_above_the_limit_are_listed(self):
        row = self.row() | {"limit_us": 1.5}
        self.assertIn("| 2.0 | copy to host | copy to device | between | 0 |", "\n".join(device_idle.lines_of(row)))

    def test_rows_of_the_same_commit_and_device_are_kept(self):
        older = self.FACTS | {"rows": [self.row(mode="kernels"), self.row() | {"steps": 1}]}
        names = lambda whole: [(row["cell"], row["mode"], row["steps"]) for row in whole["rows"]]
        self.assertEqual(names(device_idle.merged(self.FACTS, self.row(), older)), [("C", "graphs", 45), ("C", "kernels", 45)])
        self.assertEqual(names(device_idle.merged(self.FACTS | {"commit": "e"}, self.row(), older)), [("C", "graphs", 45)])
        text = "\n".join(device_idle.page(device_idle.merged(self.FACTS, self.row(), older)))
        self.assertIn("| C | kernels | 1.000 | 1.050 | 6.0 | 9.0 | 2.0 | 0 of 20 us |", text)
        self.assertIn("## C, kernels", text)

    def test_steps_of_several_arms_are_refused(self):
        line = json.dumps({"arm": "auto", "batch": 64, "decode_tokens_per_s": 32000})
        self.assertEqual(device_idle.step_ms_of(f"a table\n{line}\n{{\"summary\": true}}\n"), 2)
        self.assertIsNone(device_idle.step_ms_of("12\n"))
        with self.assertRaisesRegex(device_trace.TraceError, "2 arms"):
            device_idle.step_ms_of(f"{line}\n{line}\n")


class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def program(self, script):
        """A program that decodes, and leaves a trace where it is told to."""
        (self.work / "made").write_text("\n".join(decoding().written()) + "\n")
        program = self.work / "program"
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return str(program)

    def run_tool(self, script, *more):
        told = io.StringIO()
        left = mock.patch.dict("os.environ", {"HEADWATER_DEVICE_TRACE": "left", "CUDA_INJECTION64_PATH": "left"})
        with left, mock.patch("ctypes.CDLL"), contextlib.redirect_stdout(told):
            device_idle.main(["--library", "trace.so", *more, "--", self.program(script), "bench"])
        return told.getvalue()

    def refusal(self, script, *more):
        with self.assertRaises(SystemExit) as caught:
            self.run_tool(script, *more)
        return str(caught.exception)

    def test_a_command_runs_without_and_with_the_trace(self):
        script = f"""case $HEADWATER_DEVICE_TRACE$CUDA_INJECTION64_PATH in '') rate=64000 ;; *) rate=32000; cp {self.work}/made "$HEADWATER_DEVICE_TRACE" ;; esac
            test "$HEADWATER_DEVICE_TRACE_KIND" = '' || test "$CUDA_INJECTION64_PATH" = {pathlib.Path('trace.so').resolve()} || exit 1
            echo '{{"batch": 64, "decode_tokens_per_s": '$rate'}}'"""
        text = self.run_tool(script, "--json", str(self.work / "report"), "--cell", "C", "--out", str(self.work), "--commit", "abc")
        self.assertIn("1.000 ms without the trace and 2.000 ms with it (+100.0%)", text)
        self.assertEqual(json.loads((self.work / "report").read_text())["command"], "program bench")
        self.assertEqual(json.loads((self.work / "h200-idle.json").read_text())["rows"][0]["steps"], 45)
        self.assertIn("commit abc", (self.work / "h200-idle.md").read_text())

    def test_what_went_wrong_is_told(self):
        self.assertIn("left no trace", self.refusal("exit 0"))
        self.assertIn("ended with 3: bad flag", self.refusal("echo bad flag >&2; exit 3"))
        self.assertIn("took more than 0.2 s", self.refusal("exec sleep 20", "--timeout", "0.2"))
        with self.assertRaisesRegex(SystemExit, "cannot be loaded"):
            device_idle.main(["--library", str(self.work / "none.so"), "--", "true"])

    def test_a_trace_that_was_kept_is_read_again(self):
        (self.work / "kept").write_text("\n".join(decoding().written()) + "\n")
        with contextlib.redirect_stdout(io.StringIO()) as told:
            device_idle.main(["--read", str(self.work / "kept")])
        self.assertIn("by the bench's clock ? ms without", told.getvalue())


if __name__ == "__main__":
    unittest.main()
