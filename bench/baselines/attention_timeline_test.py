#!/usr/bin/env python3
"""Stamps, streams and pictures of the attention kernel's timeline, on made-up memory of a run; needs no GPU."""

import contextlib
import io
import pathlib
import re
import struct
import sys
import tempfile
import unittest
from xml.etree import ElementTree

sys.dont_write_bytecode = True
import attention_cell
import attention_streams
import attention_timeline
import headwater_attention
import kernel_clocks
import timeline_report

HEADER = pathlib.Path(__file__).resolve().parents[2] / "src/backend/cuda/attention/clocks.h"
CLOCKS_US, TICKS_NS = 1980, (32, 1024)
TIME_BEGAN = (1 << 27) - 20_000  # ns: the 27 bits that are kept run over within a run
LATE_US = 0.5  # a block begins so long after the one before
BOTH, FEW = 256, 128  # of JobKnown


def clock_began(block):
    return (1 << 32) - 10_000 + 1_000_003 * block  # each multiprocessor has its own; that of block 0 runs over


class Memory:
    """What blocks leave; stamps are (event, us since the block began, argument)."""

    def __init__(self, blocks=4, tick_ns=TICKS_NS[0]):
        self.blocks, self.tick_ns = blocks, tick_ns
        self.bytes = bytearray(blocks * kernel_clocks.WARPS * kernel_clocks.WARP_BYTES)
        for block in range(blocks):
            for warp in range(kernel_clocks.WARPS):
                self.put(block, warp, self.usual(warp) + [self.tick(block)] * (warp in (2, 3)))

    def tick(self, block):
        """As soon as the shared clock goes on, after the second filling of queries."""
        at = TIME_BEGAN + 1400 + 1e3 * LATE_US * block
        edge = -(-at // self.tick_ns) * self.tick_ns
        return "Tick", 1.4 + (edge - at) / 1e3 + 0.001, int(edge) % (1 << 27)

    def usual(self, warp):
        if warp < 2:
            return [("ItemKnown", 1), ("FirstCopied", 1.5), ("JobCopied", 3), ("JobCopied", 5), ("QueueEmpty", 5.1)]
        if warp < 4:
            return [("AheadEnded", 0.2), ("QueriesFilled", 1.2), ("QueriesFilled", 1.4)]
        rows = [("FirstRowComplete", 16, 5), ("LastRowComplete", 17, 5), ("RowsWritten", 18)] if warp != 11 else []
        return [("AheadEnded", 0.2), ("JobKnown", 1, 2048 << 9 | BOTH | 64), ("QueriesThere", 1.5), ("QueriesCopied", 1.75), ("TileLanded", 2),
                ("ProductsDone", 8, 3 * CLOCKS_US), ("JobFinished", 9), ("JobKnown", 10, 256 << 9 | FEW | 4),
                ("QueriesThere", 10.25), ("TileLanded", 11), ("ProductsDone", 12, CLOCKS_US), ("JobFinished", 13),
                ("JobsDone", 13.5), ("StreamsMet", 15), *rows]

    def put(self, block, warp, stamps, end=20):
        time = lambda us: int((TIME_BEGAN + (us + LATE_US * block) * 1e3) // self.tick_ns * self.tick_ns)
        clock = lambda us: (clock_began(block) + round(us * CLOCKS_US)) % (1 << 32)
        words = []
        for event, us, *argument in [("Begins", 0.01 * warp, time(0.01 * warp)), *stamps, ("Ends", end, time(end))]:
            what = kernel_clocks.EVENTS.index(event) + (sum(argument) << 5)
            words += [clock(us), what % (1 << 32)]
        at = (block * kernel_clocks.WARPS + warp) * kernel_clocks.WARP_BYTES
        struct.pack_into(f"<{2 + len(words)}I", self.bytes, at, 0, 1 + len(words) // 2, *words)

    def next_place(self, block, warp, place):
        at = (block * kernel_clocks.WARPS + warp) * kernel_clocks.WARP_BYTES
        struct.pack_into("<2I", self.bytes, at, 0, place)

    def run(self):
        return kernel_clocks.read([bytes(self.bytes)], self.blocks)[0]


class Clocks(unittest.TestCase):
    @unittest.skipUnless(HEADER.exists(), "the CUDA back end is not in this tree")
    def test_events_and_places_are_those_of_the_header(self):
        text = HEADER.read_text()
        events = {int(number): name for name, number in re.findall(r"\bk(\w+) = (\d+),", text)}
        self.assertEqual(events, {number: name for number, name in enumerate(kernel_clocks.EVENTS) if name})
        sizes = [int(re.search(name + r" = (\d+);", text)[1]) for name in ("kStampsWarp", "kStampingWarps")]
        self.assertEqual(sizes, [kernel_clocks.PLACES, kernel_clocks.WARPS])

    def test_blocks_with_clocks_of_their_own_are_lined_up(self):
        for tick_ns in TICKS_NS:
            with self.subTest(tick_ns):
                run = Memory(tick_ns=tick_ns).run()
                self.assertAlmostEqual(run.clocks_us, CLOCKS_US, delta=CLOCKS_US * tick_ns / 20_000)
                self.assertEqual(run.tick_ns, tick_ns)
                scale = CLOCKS_US / run.clocks_us
                for block, warps in enumerate(run.warps):
                    for stamp, us in zip(warps[4][1:], [0.2, 1, 1.5, 1.75, 2, 8, 9]):
                        self.assertAlmostEqual(stamp.us, us * scale + LATE_US * block, delta=0.04)
                self.assertAlmostEqual(run.us, 20 * scale + 3 * LATE_US, delta=0.05)

    def test_the_run_of_median_length_is_taken(self):
        memories = []
        for late in (3, 0, 1):
            memory = Memory()
            memory.put(3, 11, memory.usual(11), end=20 + late)
            memories.append(bytes(memory.bytes))
        run, lengths = kernel_clocks.read(memories, 4)
        for found, us in zip([*lengths, run.us], (21.5, 22.5, 24.5, 22.5)):
            self.assertAlmostEqual(found, us, delta=0.05)

    def test_memory_that_no_run_has_left_is_refused(self):
        stamps = [("AheadEnded", 1)] * (kernel_clocks.PLACES - 5)
        with self.subTest("full"):
            memory = Memory()
            memory.put(2, 5, stamps)
            self.assertEqual(len(memory.run().warps[2][5]), kernel_clocks.PLACES - 3)
            memory.put(2, 5, [*stamps, ("AheadEnded", 1)])
            with self.assertRaisesRegex(kernel_clocks.ClocksError, "block 2, warp 5: more than 1021 stamps"):
                memory.run()
        for place in (0, 2, kernel_clocks.PLACES, 1 << 31):
            memory = Memory()
            memory.next_place(1, 3, place)
            with self.subTest(place), self.assertRaisesRegex(kernel_clocks.ClocksError, f"block 1, warp 3: {place} "):
                memory.run()
        for event in (0, 31):
            memory = Memory()
            struct.pack_into("<2I", memory.bytes, 16, 5, event)
            with self.subTest(event), self.assertRaisesRegex(kernel_clocks.ClocksError, "event that clocks.h"):
                memory.run()
        with self.assertRaisesRegex(kernel_clocks.ClocksError, "for 5 blocks"):
            kernel_clocks.read([bytes(Memory().bytes)], 5)


class Streams(unittest.TestCase):
    def setUp(self):
        self.run_read = Memory().run()
        self.streams = attention_streams.streams_of(self.run_read)

    def test_a_stream_has_its_jobs_with_what_each_waited_for(self):
        self.assertEqual(len(self.streams), 8)
        for stream in self.streams:
            both, few = stream.jobs
            self.assertEqual([(job.kind, job.keys, job.rows) for job in (both, few)], [("B", 2048, 64), ("F", 256, 4)])
            for found, us in zip((both.us, both.waited, few.us, few.waited), (8, 3, 3, 1)):
                self.assertAlmostEqual(found, us, delta=0.01)
            for phase, us in {"j": 1, "q": 0.25, "t": 0.75, "F": 1, "f": 1}.items():
                self.assertAlmostEqual(few.phases[phase], us, delta=0.01)

    def test_phases_fill_a_stream_without_a_gap(self):
        for stream in self.streams:
            self.assertEqual("".join(segment.phase for segment in stream.segments)[:14], "kjqQtBfjqtFfjb")
            ends = [segment.end for segment in stream.segments]
            self.assertEqual([segment.begin for segment in stream.segments[1:]], ends[:-1])
            self.assertAlmostEqual(sum(map(stream.us_in, attention_streams.PHASES)), 20, delta=0.1)

    def test_times_are_those_of_the_warps_that_have_the_event(self):
        of = lambda *arguments: attention_streams.times(self.run_read, *arguments)
        self.assertEqual(len(of("RowsWritten", range(4, 12), -1)), 7 * 4)
        self.assertAlmostEqual(min(of("JobCopied", (0, 1), 0)), 3, delta=0.05)
        self.assertAlmostEqual(min(of("JobCopied", (0, 1), -1)), 5, delta=0.05)
        self.assertEqual(of("FirstCopied", (4,), 0), [])


class Reports(unittest.TestCase):
    def test_a_picture_has_the_phase_that_takes_most_of_a_column(self):
        segments = [attention_streams.Segment("k", 0, 2), attention_streams.Segment("j", 2, 3.4),
                    attention_streams.Segment("F", 3.4, 8)]
        self.assertEqual(timeline_report.picture(segments, 10, 10), "kkjFFFFF")
        self.assertEqual(timeline_report.picture(segments, 8, 4), "kjFF")

    def test_a_report_names_phases_jobs_moments_and_blocks(self):
        text = timeline_report.report(Memory().run())
        for part in (r"multiplies for a job of both streams +6\.00 ", r"waits for tiles, inside of its jobs\) +4\.00 ",
                     r"has not begun +0\.81 ", r"has ended +0\.75 ",
                     r"attending: all jobs done +13\.5\d / 14\.\d+ / 15\.0\d   8", r"merging: rows written .* 28",
                     r"few rows +8 +1 / 1 / 1 +256 / 256 / 256 +4 / 4 / 4", r"first done   0\.0 \|k+j+q+Q+t*B+f+j+",
                     r"\| {6,8}i+l+e+\n last done   3\.1 \| {6,8}k"):
            self.assertRegex(text, part)

    def test_a_summary_is_four_lines(self):
        lines = list(timeline_report.summary(Memory().run()))
        self.assertEqual(len(lines), 4)
        self.assertIn("multiplies few rows 1.0", lines[0])
        self.assertIn("8 of few rows (3.0 / 3.0 / 3.0 us)", lines[1])
        self.assertIn("jobs done 13.5/14.", lines[2])

    def test_a_run_without_partials_has_a_report_too(self):
        memory = Memory()
        for block in range(memory.blocks):
            for warp in range(4, 12):
                memory.put(block, warp, memory.usual(warp)[:13])
        self.assertRegex(timeline_report.report(memory.run()), r"merging: rows written +-   0")
        self.assertEqual(len(list(timeline_report.summary(memory.run()))), 4)

    def test_the_drawing_has_a_box_for_every_phase_of_every_stream(self):
        run = Memory().run()
        boxes = sum(len(stream.segments) for stream in attention_streams.streams_of(run))
        tree = ElementTree.fromstring(timeline_report.svg(run))
        self.assertEqual(sum(node.tag.endswith("rect") for node in tree), boxes + len(attention_streams.PHASES))


class Commands(unittest.TestCase):
    def test_cells_are_those_of_both_grids_and_may_have_another_tail(self):
        cells = attention_timeline.cells_of(["main_b64_s8192/64", "run_b256_s8192"])
        self.assertEqual([(cell.name, cell.shared, cell.tail) for cell in cells],
                         [("main_b64_s8192_t64", 8192, 64), ("run_b256_s8192", 8192, 1)])

    def test_a_cell_that_is_not_there_is_an_error(self):
        for name, why in (("none", "no cell is called none"), ("main_b64_s8192/x", "NAME/N"), ("main_b64_s8192/0", "positive")):
            with self.subTest(name), tempfile.TemporaryDirectory() as out, \
                    contextlib.redirect_stderr(io.StringIO()) as errors:
                self.assertEqual(attention_timeline.main(["--out", out, name]), 2)
                self.assertIn(why, errors.getvalue())

    def test_a_cell_without_stamps_leaves_the_others(self):
        class Timelines:
            def cell(self, cell):
                if cell.shared == 2048:
                    raise kernel_clocks.ClocksError("no stamps")
                return True
        cells = attention_timeline.cells_of(["seed_b4_s2048", "seed_b4_s8192"])
        with contextlib.redirect_stderr(io.StringIO()) as errors:
            self.assertEqual([attention_timeline.is_right(Timelines(), cell) for cell in cells], [False, True])
        self.assertIn("seed_b4_s2048: no stamps", errors.getvalue())

    def test_no_run_at_all_is_refused(self):
        for words in (["--runs", "0"], ["--repeats", "-1"]):
            with self.subTest(words), contextlib.redirect_stderr(io.StringIO()) as errors:
                with self.assertRaises(SystemExit):
                    attention_timeline.parse(["--out", "x", "seed_b4_s2048", *words])
                self.assertIn("1 or more", errors.getvalue())

    def test_a_library_without_clocks_says_how_to_get_them(self):
        library = object.__new__(headwater_attention.Library)
        library._functions = object()
        with self.assertRaisesRegex(headwater_attention.AttentionError, "HEADWATER_KERNEL_CLOCKS=ON"):
            library.stamps(1)


if __name__ == "__main__":
    unittest.main()
