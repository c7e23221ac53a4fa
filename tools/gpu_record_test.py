#!/usr/bin/env python3
"""gpu_record.py without a GPU: what it reads from reports and logs, how long it lets a command run, what it writes."""

import argparse
import json
import pathlib
import stat
import sys
import tempfile
import unittest

sys.path.insert(0, str(pathlib.Path(__file__).parent))
import gpu_record

REPORT = {"testsuites": [{"testsuite": [
    {"name": "A/cuda", "classname": "T/Suite", "status": "RUN", "result": "COMPLETED", "left_out": "no f32 pages"},
    {"name": "B/cuda", "classname": "T/Suite", "status": "RUN", "result": "COMPLETED", "failures": [{"failure": "x"}]},
    {"name": "C/cuda", "classname": "T/Suite", "status": "RUN", "result": "SKIPPED"},
    {"name": "D/cpu", "classname": "T/Suite", "status": "NOTRUN", "result": "SUPPRESSED"}]}]}
LOG = """[ RUN      ] T/Suite.A/cuda
noise
[       OK ] T/Suite.A/cuda (1 ms)
[ RUN      ] T/Suite.C/cuda
a/test.cc:7: Skipped
takes multiples of 16

[  SKIPPED ] T/Suite.C/cuda (0 ms)
[  SKIPPED ] 1 test, listed below:
"""


def a_run(part, **more):
    return {"part": part, "tool": "gtest", "command": f"{part} a|b", "seconds": 1.5, "status": 0, **more}


class Reading(unittest.TestCase):
    def test_a_report_gives_counts_and_the_log_the_reasons(self):
        tests = gpu_record.tests_of(REPORT, LOG)
        self.assertEqual((tests["run"], tests["passed"], tests["failed"]), (3, 1, ["T/Suite.B/cuda"]))
        self.assertEqual(tests["skipped"], [{"test": "T/Suite.C/cuda", "reason": "takes multiples of 16"}])
        self.assertEqual(tests["left_out"], [{"test": "T/Suite.A/cuda", "reason": "no f32 pages"}])

    def test_a_sanitizer_s_last_summary_counts(self):
        log = "========= COMPUTE-SANITIZER\n========= ERROR SUMMARY: 2 errors\n========= ERROR SUMMARY: 0 errors\n"
        self.assertEqual(gpu_record.sanitizer_summary(log), "ERROR SUMMARY: 0 errors")
        self.assertEqual(gpu_record.sanitizer_summary("killed"), "no summary")

    def test_a_filter_that_selects_nothing_is_a_failure(self):
        self.assertFalse(gpu_record.is_good(a_run("tests", tests={"run": 0})))
        self.assertTrue(gpu_record.is_good(a_run("tests", tests={"run": 1})))


class Running(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.work = pathlib.Path(folder.name)

    def run_shell(self, script, seconds=20.0, part="tests"):
        program = self.work / "program"
        program.write_text("#!/bin/sh\n" + script)
        program.chmod(program.stat().st_mode | stat.S_IXUSR)
        return self.run_command([str(program)], seconds, part)

    def run_command(self, command, seconds=20.0, part="tests"):
        good = gpu_record.run_command(argparse.Namespace(
            work=self.work, part=part, part_seconds=seconds, tool="gtest", command=command))
        return good, gpu_record.read_runs(self.work)[-1]

    def test_a_command_s_report_is_found_where_googletest_was_told_to_write_it(self):
        good, run = self.run_shell(f"cat > ${{GTEST_OUTPUT#json:}} <<'END'\n{json.dumps(REPORT)}\nEND\nexit 1")
        self.assertFalse(good)
        self.assertEqual((run["status"], run["tests"]["run"]), (1, 3))

    def test_a_command_is_stopped_at_the_end_of_its_part_and_the_next_is_not_run(self):
        good, run = self.run_shell("sleep 60", seconds=1.2)
        self.assertEqual((good, run["status"]), (False, 124))
        good, run = self.run_shell("exit 0", seconds=1.2)
        self.assertEqual((good, run["status"]), (False, -1))
        good, run = self.run_shell("echo === ERROR SUMMARY: 0 errors", seconds=5, part="sanitizer")  # its own time
        self.assertEqual((good, run["findings"]), (True, "ERROR SUMMARY: 0 errors"))

    def test_a_sanitizer_that_says_nothing_found_nothing_out(self):
        self.assertFalse(self.run_shell("exit 0", part="sanitizer")[0])

    def test_a_program_that_is_not_there_fails(self):
        good, run = self.run_command([str(self.work / "nothing")])
        self.assertEqual((good, run["status"]), (False, 127))


class Writing(unittest.TestCase):
    FACTS = {"device": "H", "driver": "1", "nvcc": "13", "commit": "c", "date": "d"}

    def test_parts_that_did_not_run_are_kept_from_the_same_commit_and_device_only(self):
        older = dict(self.FACTS, runs=[a_run("bench"), a_run("tests", status=1)])
        record = dict(self.FACTS, runs=[a_run("tests")])
        self.assertEqual([(run["part"], run["status"]) for run in gpu_record.merged(record, older)["runs"]],
                         [("tests", 0), ("bench", 0)])
        self.assertEqual(gpu_record.merged(record, dict(older, commit="other")), record)

    def test_the_page_names_failures_reasons_and_times(self):
        cell = {"cell": "B4", "arm": "auto", "us": 12.34, "warm_us": 5, "bound_us": 10, "path": "shared"}
        text = gpu_record.page(dict(self.FACTS, runs=[
            a_run("tests", status=1, tests=gpu_record.tests_of(REPORT, LOG)),
            a_run("sanitizer", findings="ERROR SUMMARY: 0 errors"),
            a_run("bench", bench={"lines": [cell, {"cell": "B8", "skipped": "the time was over"}]})]))
        for words in ("2 of 3 commands", "1 passed, 1 failed, 1 skipped", "- T/Suite.B/cuda (gtest)",
                      "takes multiples of 16", "a case left out: no f32 pages", "ok; ERROR SUMMARY: 0 errors",
                      "| B4 | auto | 12.3 | 5.0 | 10.0 | shared |", "skipped: the time was over", "a\\|b"):
            self.assertIn(words, text)


if __name__ == "__main__":
    unittest.main()
