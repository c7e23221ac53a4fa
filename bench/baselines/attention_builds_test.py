#!/usr/bin/env python3
"""Ratios and arguments of attention_builds.py; needs no GPU."""

import argparse
import pathlib
import sys
import unittest

sys.dont_write_bytecode = True
import attention_builds


class Ratios(unittest.TestCase):
    CELLS = [{("auto", "before"): 20.0, ("auto", "after"): 10.0, ("off", "before"): 9.0, ("off", "after"): 9.0},
             {("auto", "before"): 10.0, ("auto", "after"): 20.0},
             {("auto", "before"): 8.0}]  # the other one had no graph

    def test_a_build_that_takes_half_of_the_time_is_twice_as_fast(self):
        self.assertEqual(attention_builds.ratios(self.CELLS, "auto", "before", "after"), [2.0, 0.5])

    def test_the_summary_has_a_line_for_each_other_build_that_was_timed(self):
        lines = list(attention_builds.summary(self.CELLS, "auto", ["before", "after", "never"]))
        self.assertEqual(lines, ["auto: after 1.000 x as fast as before over 2 cells (0.500 to 2.000)"])

    def test_modes_are_told_apart(self):
        lines = list(attention_builds.summary(self.CELLS, "off", ["before", "after"]))
        self.assertEqual(lines, ["off: after 1.000 x as fast as before over 1 cells (1.000 to 1.000)"])


class Arguments(unittest.TestCase):
    def test_a_build_is_a_name_and_a_path(self):
        self.assertEqual(attention_builds.build_of("a=b=c.so"), ("a", pathlib.Path("b=c.so")))
        for text in ("a", "a=", "=b"):
            with self.assertRaisesRegex(argparse.ArgumentTypeError, "NAME=PATH"):
                attention_builds.build_of(text)

    def test_modes_are_those_of_sharing(self):
        self.assertEqual(attention_builds.modes_of("auto,off"), ["auto", "off"])
        with self.assertRaisesRegex(argparse.ArgumentTypeError, "sometimes: a mode is one of"):
            attention_builds.modes_of("auto,sometimes")

    def test_what_cannot_run_ends_with_2(self):
        self.assertEqual(attention_builds.main(["a=nowhere.so", "--cells", "no_such_cell"]), 2)


if __name__ == "__main__":
    unittest.main()
