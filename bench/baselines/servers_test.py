#!/usr/bin/env python3
"""Parsing and verdicts of the comparison of servers, on captured lines; runs no server."""

import contextlib
import io
import json
import pathlib
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
import llama_cpp
import llama_cpp_build
import servers
import servers_record


def line(concurrency, repetition, **fields):
    requests = 16 if concurrency == 16 else 8
    return {"concurrency": concurrency, "repetition": repetition, "requests": requests, "completed": requests,
            "errors": 0, "seconds": 2.0, "output_tokens": 64 * requests, "output_tokens_per_s": 32.0 * requests,
            "prompt_tokens": 2046 * requests, "cached_tokens": 0, "path_deltas": {},
            "ttft_ms": {"p50": 400, "p99": 600}, "tpot_ms": {"p50": 20}} | fields


def text_of(*lines):
    return "".join(json.dumps(entry) + "\n" for entry in [*lines, {"summary": True}])


def run_of(engine, seconds, tokens_per_s, ttft, peak_bytes=500e6, others=0.02):
    wave = {"seconds": seconds, "tokens_per_s": tokens_per_s, "ttft_p50_ms": ttft, "ttft_p99_ms": 2 * ttft,
            "tpot_p50_ms": 10, "prompt_tokens": 32736, "cached_tokens": 0, "requests": 16, "path_deltas": {}}
    return {"engine": engine, "waves": {name: dict(wave) for name in servers_record.WAVES}, "peak_bytes": peak_bytes,
            "others_cpu_share": others}


OURS, AUTO, OFF = "headwater", "llama-server -fa auto", "llama-server -fa off"
WAVES = (line(16, 1, seconds=9.0), line(16, 2), line(1, 1, seconds=5.0), line(1, 2, seconds=4.0))


class Waves(unittest.TestCase):
    def test_the_first_wave_is_cold_and_the_last_single_chats_count(self):
        waves = servers.waves_of(text_of(*WAVES))
        self.assertEqual([waves[name]["seconds"] for name in servers_record.WAVES], [9.0, 2.0, 4.0])

    def test_a_wave_that_was_not_answered_whole_is_an_error(self):
        for fields in ({"errors": 1}, {"completed": 15}, {"output_tokens": 1000}):
            with self.subTest(fields), self.assertRaises(llama_cpp.MeasureError):
                servers.waves_of(text_of(line(16, 1, **fields), *WAVES[1:]))
        with self.assertRaises(llama_cpp.MeasureError):
            servers.waves_of(text_of(*WAVES[:2]))

    def test_the_peak_is_the_kernels_high_water_mark(self):
        self.assertEqual(servers.peak_bytes("Name:\tx\nVmPeak:\t  900 kB\nVmHWM:\t  300 kB\nVmRSS:\t 200 kB\n"), 307200)


class Verdicts(unittest.TestCase):
    runs = [run_of(OURS, 10, 200, 1000), run_of(AUTO, 40, 50, 5000), run_of(OFF, 20, 70, 4000),
            run_of(OURS, 12, 180, 1100), run_of(AUTO, 44, 45, 5000), run_of(OFF, 24, 75, 4000)]

    def test_the_peers_best_option_counts(self):
        verdict = servers_record.verdict(self.runs)
        self.assertEqual((verdict["best_peer"]["cold16"], verdict["missed"]), (OFF, []))
        self.assertAlmostEqual(verdict["ratios"]["cold16"]["seconds"]["median"], 0.5)
        self.assertAlmostEqual(verdict["ratios"]["warm16"]["tokens_per_s"]["min"], 180 / 75)

    def test_each_must_can_be_missed(self):
        for ours, missed in ((run_of(OURS, 15, 200, 1000), ["cold16 seconds at most 0.6 x"]),
                             (run_of(OURS, 10, 100, 1000), ["warm16 tokens/s at least 2.5 x"]),
                             (run_of(OURS, 10, 200, 1000, 700e6), ["peak memory at most 600 MB"])):
            with self.subTest(missed):
                self.assertEqual(servers_record.verdict([ours, *self.runs[1:3]])["missed"], missed)
        late = servers_record.verdict([run_of(OURS, 10, 200, 4001), *self.runs[1:3]])
        self.assertEqual(len(late["missed"]), 4)

    def run_main(self, runs, words=()):
        peer = {"version": "version: 1", "options": {"GGML_AVX": "ON"}, "flags": "-O3", "barrier": True}
        patch = unittest.mock.patch.object
        with (tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as errors,
              patch(servers, "measure", lambda *_: runs), patch(llama_cpp_build, "describe", lambda *_: peer),
              patch(llama_cpp, "commit", lambda: "abc")):
            code = servers.main(["--peer-build", folder, "--out", folder, *words])
            [page] = pathlib.Path(folder).glob("cpu-servers-*.md")
            lines = [json.loads(entry) for entry in page.with_suffix(".json").read_text().splitlines()]
            return code, page.read_text(), lines, errors.getvalue()

    def test_the_record_names_what_was_missed(self):
        code, page, lines, errors = self.run_main([run_of(OURS, 15, 200, 1000), *self.runs[1:3]])
        self.assertEqual((code, lines[-1]["summary"], len(lines)), (1, True, 4))
        self.assertIn("Missed: cold16 seconds at most 0.6 x.", errors)
        self.assertIn("| ours / llama-server -fa off | **0.75** (0.75..0.75) |", page)
        self.assertIn("| vLLM, quoted | 4.9 (4.6..5.2) |", page)
        self.assertEqual(self.run_main(self.runs)[0], 0)
        self.assertEqual(self.run_main([run_of(OURS, 15, 200, 1000), *self.runs[1:3]], ["--quick"])[0], 0)

    def test_a_disturbed_run_is_no_record(self):
        code, _, lines, _ = self.run_main([run_of(OURS, 10, 200, 1000, others=0.4), *self.runs[1:3]])
        self.assertEqual((code, lines[-1]["disturbed"]), (1, [OURS]))


class Commands(unittest.TestCase):
    def test_both_sides_get_the_same_model_and_threads(self):
        arguments = servers.parse(["-m", "m.gguf", "-t", "2"])
        ours = " ".join(map(str, servers.our_command(arguments, 8001)))
        theirs = " ".join(map(str, servers.peer_command(arguments, pathlib.Path("build"), "-fa off", 8002)))
        self.assertIn("serve -m m.gguf -t 2 --host 127.0.0.1 --port 8001", ours)
        self.assertIn("llama-server -m m.gguf -c 40960 -np 16 -t 2 -tb 2 --host 127.0.0.1 --port 8002 -fa off", theirs)


if __name__ == "__main__":
    unittest.main()
