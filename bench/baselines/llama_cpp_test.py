#!/usr/bin/env python3
"""Commands, parsing and verdicts of the comparison with llama.cpp, on captured lines; runs neither program."""

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
import llama_cpp_record

CELLS = {cell.name: cell for cell in llama_cpp.CELLS}
# Printed by llama.cpp 0c1e570, cut to the fields that say something.
BENCH_LINE = ('{"build_commit": "0c1e570", "n_threads": 2, "type_k": "f16", "n_gen": 16, "avg_ns": 508702405, '
              '"avg_ts": 31.452574, "stddev_ts": 0.000000, "samples_ns": [ 508702405 ],"samples_ts": [ 31.4526 ]}\n')
BATCHED_LINE = ('\n{"n_kv_max": 4096, "flash_attn": 0, "is_pp_shared": 1, "pp": 2048, "tg": 32, "pl": %d, "n_kv": %d, '
                '"t_pp": 2.294018, "speed_pp": 111.594589, "t_tg": 1.982120, "speed_tg": 16.144329}\n\n')
CPUINFO = ("processor\t: 0\nvendor_id\t: GenuineIntel\ncpu family\t: 6\nmodel\t\t: 207\n"
           "model name\t: Intel(R) Xeon(R) Processor\nflags\t\t: fpu avx avx2 fma f16c bmi2 avx512f avx512cd avx512vl "
           "avx512dq avx512bw avx512_vnni avx512_fp16\n\nprocessor\t: 1\nvendor_id\t: GenuineIntel\n\n")
OUR_SUMMARY = '{"summary":true,"target":"avx512_amx","threads":2,"memory_bytes_per_s":3e10}'


def our_lines(**fields):
    arm = {"arm": "auto", "batch": 8, "path": "shared", "members": 8, "groups": 1, "shared_pages": 64,
           "decode_tokens_per_s": 400.0, "prefill_tokens_per_s": 900.0} | fields
    return f'{{"kind":"embed","ms":0.006,"arm":"auto"}}\n{json.dumps(arm)}\n{OUR_SUMMARY}\n'


def result_of(ours, on, off, name="shared-2048-b8"):
    cell = CELLS[name]
    result = {"cell": name, "title": cell.title, "must": cell.must, "aim": cell.aim, "ours": ours,
              "others_cpu_share": 0.02, "target": "avx512_amx", "memory_bytes_per_s": 3e10,
              "theirs": {"-fa on": on, "-fa off": off}}
    return result | llama_cpp_record.verdict(result)


class Samples(unittest.TestCase):
    def test_ours_is_the_line_of_the_auto_arm(self):
        arm, run = llama_cpp.our_sample(CELLS["shared-2048-b8"], our_lines())
        self.assertEqual((arm["decode_tokens_per_s"], run["target"]), (400.0, "avx512_amx"))

    def test_an_arm_that_does_not_share_as_its_cell_says_is_an_error(self):
        for fields in ({"path": "flat", "members": 0}, {"path": "mixed"}, {"members": 7}, {"batch": 7}, {"arm": "off"}):
            with self.subTest(fields), self.assertRaises(llama_cpp.MeasureError):
                llama_cpp.our_sample(CELLS["shared-2048-b8"], our_lines(**fields))
        with self.assertRaises(llama_cpp.MeasureError):
            llama_cpp.our_sample(CELLS["flat-2048-b8"], our_lines())
        with self.assertRaises(llama_cpp.MeasureError):
            llama_cpp.our_sample(CELLS["flat-2048-b8"], "")

    def test_theirs_is_the_decode_rate_of_either_program(self):
        self.assertEqual(llama_cpp.peer_sample(CELLS["chat-short"], BENCH_LINE), 31.452574)
        shared, copied = 2048 + 8 * 32, 8 * (2048 + 32)
        self.assertEqual(llama_cpp.peer_sample(CELLS["shared-2048-b8"], BATCHED_LINE % (8, shared)), 16.144329)
        self.assertEqual(llama_cpp.peer_sample(CELLS["flat-2048-b8"], BATCHED_LINE % (8, copied)), 16.144329)

    def test_a_cache_of_another_size_is_an_error(self):
        shared, copied = 2048 + 8 * 32, 8 * (2048 + 32)
        for name, batch, tokens in (("shared-2048-b8", 8, copied), ("flat-2048-b8", 8, shared),
                                    ("shared-2048-b8", 4, shared)):
            with self.subTest(name), self.assertRaises(llama_cpp.MeasureError):
                llama_cpp.peer_sample(CELLS[name], BATCHED_LINE % (batch, tokens))
        with self.assertRaises(llama_cpp.MeasureError):  # a context too small for the cell: no line, exit code 0
            llama_cpp.peer_sample(CELLS["shared-2048-b8"], "\n")


class Commands(unittest.TestCase):
    def words(self, name):
        return " ".join(map(str, llama_cpp.peer_command(pathlib.Path("bin"), CELLS[name], "on", "m.gguf", 2)))

    def test_a_shared_prompt_is_held_once_and_a_private_one_copied(self):
        self.assertIn("-npp 2048 -ntg 32 -npl 8 -c 2312 -pps -kvu", self.words("shared-2048-b8"))
        self.assertIn("-npp 2048 -ntg 32 -npl 8 -c 16648 -pps --output-format", self.words("flat-2048-b8"))
        self.assertIn("-npp 8000 -ntg 32 -npl 1 -c 8033 --output-format", self.words("chat-8000"))

    def test_prefill_and_short_decode_run_llama_bench(self):
        self.assertTrue(self.words("chat-short").startswith("bin/llama-bench -m m.gguf -t 2 -fa on -p 0 -n 128"))
        self.assertIn("-p 512 -n 0", self.words("prefill-512"))

    def test_quick_names_cells_that_exist_and_writes_no_record(self):
        arguments = llama_cpp.parse(["--quick"])
        self.assertEqual([cell.name for cell in arguments.cells], list(llama_cpp.QUICK))
        self.assertEqual((arguments.reps, arguments.out), (1, None))
        with self.assertRaises(SystemExit), contextlib.redirect_stderr(io.StringIO()):
            llama_cpp.parse(["--only", "shared-2048-b9"])


class Verdicts(unittest.TestCase):
    def test_the_peers_best_option_counts_and_pairs_give_the_spread(self):
        result = result_of([400, 440, 360], [50, 60, 55], [100, 80, 90])
        self.assertEqual((result["best"], result["ok"]), ("-fa off", "must"))
        self.assertAlmostEqual(result["ratio"], 400 / 90)
        self.assertAlmostEqual(result["ratio_min"], 4.0)
        self.assertAlmostEqual(result["ratio_max"], 5.5)
        self.assertEqual(result_of([500], [100], [90])["ok"], "aim")
        self.assertEqual(result_of([299], [100], [90])["ok"], "no")

    def run_main(self, words, **changes):
        """Exit code, page, lines and errors of a run whose cells all measured 2.99 times the peer."""
        peer = {"version": "version: 1", "options": {"GGML_AVX": "ON"}, "flags": "-O3", "barrier": True}
        patch = unittest.mock.patch.object
        with (tempfile.TemporaryDirectory() as folder, contextlib.redirect_stderr(io.StringIO()) as errors,
              patch(llama_cpp, "measure", lambda cell, *_: result_of([299.0], [100.0], [90.0], cell.name) | changes),
              patch(llama_cpp_build, "describe", lambda _: peer), patch(llama_cpp, "commit", lambda: "abc")):
            code = llama_cpp.main([*words, "--peer-build", folder, "--out", folder])
            [page] = pathlib.Path(folder).glob("cpu-*.md")
            lines = [json.loads(line) for line in page.with_suffix(".json").read_text().splitlines()]
            return code, page.read_text(), lines, errors.getvalue()

    def test_a_missed_must_is_named_and_sets_the_exit_code(self):
        code, page, lines, errors = self.run_main(["--only", "shared-2048-b8,prefill-512"])
        self.assertEqual((code, lines[-1]["missed"]), (1, ["shared-2048-b8"]))
        self.assertIn("Missed: shared-2048-b8.\n", errors)
        self.assertIn("| `-fa on` 100.0 (100.0..100.0) | 2.99 | 2.99..2.99 | 3 / 5 | **missed** |", page)
        self.assertEqual([line.get("summary", False) for line in lines], [False, False, True])
        self.assertEqual(self.run_main(["--only", "prefill-512"])[0], 0)
        self.assertEqual(self.run_main(["--only", "shared-2048-b8", "--quick"])[0], 0)

    def test_a_disturbed_cell_is_no_record(self):
        code, page, lines, errors = self.run_main(["--only", "prefill-512"], others_cpu_share=0.6)
        self.assertEqual((code, lines[-1]["disturbed"]), (1, ["prefill-512"]))
        self.assertIn("no valid record: prefill-512", errors)
        self.assertIn("| yes, but other work took 60% |", page)


class Load(unittest.TestCase):
    def test_busy_time_counts_steal_and_leaves_idle_out(self):
        stat = "cpu  100 20 3 5000 700 4 5 6 0 0\ncpu0 50 10 1 2500 350 2 2 3 0 0\n"
        self.assertEqual(llama_cpp.cpu_seconds(stat, 100), 1.38)


class Build(unittest.TestCase):
    def test_the_processor_names_the_record_and_its_flags_the_options(self):
        processor = llama_cpp_build.processor(CPUINFO)
        self.assertEqual([processor[key] for key in ("vendor", "family", "model", "cores")], ["intel", 6, 207, 2])
        options = llama_cpp_build.options_for(processor["flags"])
        self.assertEqual((options["GGML_AVX512"], options["GGML_AVX512_VNNI"]), ("ON", "ON"))
        self.assertEqual((options["GGML_AVX512_BF16"], options["GGML_AMX_TILE"], options["GGML_NATIVE"]), ("OFF",) * 3)

    def test_the_barrier_is_put_before_the_tile_load_once(self):
        source = "  tc.rows[0] = 8;\n    _tile_loadconfig(&tc);\n"
        fixed = llama_cpp_build.with_barrier(source)
        self.assertLess(fixed.index("asm volatile"), fixed.index("_tile_loadconfig"))
        self.assertEqual(llama_cpp_build.with_barrier(fixed), fixed)
        with self.assertRaises(llama_cpp_build.BuildError):
            llama_cpp_build.with_barrier("no tiles here")


if __name__ == "__main__":
    unittest.main()
