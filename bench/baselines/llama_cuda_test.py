#!/usr/bin/env python3
"""Cells, trimming, random weights, runs and verdicts of the comparison with llama.cpp on a GPU; needs neither."""

import contextlib
import io
import json
import math
import pathlib
import struct
import sys
import tempfile
import unittest
import unittest.mock

sys.dont_write_bytecode = True
ROOT = pathlib.Path(__file__).resolve().parents[2]
sys.path.append(str(ROOT / "tools"))
import gpu_steps
import llama_cuda
import llama_cuda_cells
import llama_cuda_record
import llama_cuda_source
import random_gguf
from llama_cuda_cells import LLAMA_BENCH, ONE_BUFFER, STREAMS

CELLS = {cell.ours: cell for cell in llama_cuda_cells.CELLS}
DENSE, SHARED, PROMPTS = "8B bf16, 16 alone", "8B bf16, 64 behind 8,192", "8B bf16, prompts of 2,048"
TINY = random_gguf.Shape(2, 64, 128, 4, 2, 96, 256, 1e4, tied=False)
# Prints what llama.cpp's program of that name prints for its words, or fails with one buffer.
PROGRAM = """#!/usr/bin/env python3
import json, sys
words = sys.argv[1:]
value = lambda flag: words[words.index(flag) + 1]
if "-o" in words:
    for flag, other in (("-p", 0), ("-n", 1)):
        if int(value(flag)):
            sizes = {"n_prompt": int(value(flag)) * (1 - other), "n_gen": int(value(flag)) * other}
            print(json.dumps(sizes | {"samples_ts": [200.0] * int(value("-r"))}))
elif "-kvu" in words:
    sys.exit("mul_mat_q_case: left out of this build")
else:
    pp, tg = int(value("-npp")), int(value("-ntg"))
    print("warming up")
    for pl in map(int, value("-npl").split(",")):
        line = {"pp": pp, "tg": tg, "pl": pl, "n_kv": pl * (pp + tg)}
        print(json.dumps(line | {"t_tg": 0.01 * tg, "speed_pp": 20000.0}))
"""


def run_of(name, arm):
    return next(run for run in llama_cuda_cells.runs() if run.arm == arm and CELLS[name] in run.cells)


def words_of(name, arm):
    return " ".join(map(str, llama_cuda_cells.command(run_of(name, arm), pathlib.Path("bin"), "m")))


def batched_line(**fields):
    return json.dumps({"pp": 128, "tg": 64, "pl": 16, "n_kv": 3072, "t_tg": 0.64, "speed_pp": 2e4} | fields) + "\n"


class Cells(unittest.TestCase):
    def test_each_is_the_cell_of_that_name_on_our_side(self):
        ours = {name: flags for name, flags, _ in gpu_steps.cells("model.gguf")}
        self.assertEqual(set(ours), set(CELLS))
        for name, cell in CELLS.items():
            with self.subTest(name):
                flag = {flag: ours[name][at + 1] for at, flag in enumerate(ours[name][:-1])}
                sizes = [flag[f"--{each}"] for each in ("batch", "shared-tokens")]
                self.assertEqual(sizes, [cell.batch, cell.shared])
                if not cell.shared:  # behind a shared prompt llama.cpp's chats have no tokens of their own
                    sizes = [flag[f"--{each}"] for each in ("prompt-tokens", "max-tokens")]
                    self.assertEqual(sizes, [cell.prompt, cell.generate])

    def test_a_shared_prompt_lies_once_in_one_buffer_and_is_copied_into_streams(self):
        words = {arm: words_of(SHARED, arm) for arm in (ONE_BUFFER, STREAMS)}
        self.assertIn("-npp 8192 -ntg 64 -npl 64,64,64 -c 12288 -pps -kvu", words[ONE_BUFFER])
        self.assertIn("-npp 8192 -ntg 64 -npl 64,64,64 -c 540672 -pps --output-format", words[STREAMS])

    def test_numbers_of_chats_share_a_process_and_one_chat_and_prompts_run_in_llama_bench(self):
        self.assertIn("-npl 1,1,1,16,16,16,64,64,64 -c 16384 --output-format", words_of(DENSE, STREAMS))
        words = words_of(PROMPTS, LLAMA_BENCH)
        self.assertTrue(words.startswith("bin/llama-bench -m m -dev CUDA0"))
        self.assertIn("-p 2048 -n 64 -r 3", words)

    def test_samples_are_milliseconds_a_step_or_prompt_tokens_a_second(self):
        run, text = run_of(DENSE, STREAMS), "log\n" + batched_line() * 3 + batched_line(pl=1, n_kv=192)
        self.assertEqual(llama_cuda_cells.samples(run, CELLS[DENSE], text), [10, 10, 10])
        text = batched_line(pp=2048, tg=8, pl=8, n_kv=8 * 2056) * 3
        self.assertEqual(llama_cuda_cells.samples(run_of(PROMPTS, STREAMS), CELLS[PROMPTS], text), [2e4] * 3)
        text = ('{"n_prompt": 2048, "n_gen": 0, "samples_ts": [1, 2, 3]}\n'
                '{"n_prompt": 0, "n_gen": 64, "samples_ts": [200, 250, 500]}')
        run = run_of(PROMPTS, LLAMA_BENCH)
        self.assertEqual(llama_cuda_cells.samples(run, CELLS[PROMPTS], text), [1, 2, 3])
        self.assertEqual(llama_cuda_cells.samples(run, CELLS["8B bf16, 1 alone"], text), [5, 4, 2])

    def test_a_cache_of_another_size_or_a_missing_repetition_is_an_error(self):
        for text in (batched_line() * 2, batched_line(n_kv=128 + 16 * 64) * 3, ""):
            with self.subTest(text), self.assertRaises(llama_cuda_cells.CellError):
                llama_cuda_cells.samples(run_of(DENSE, STREAMS), CELLS[DENSE], text)


class Trimming(unittest.TestCase):
    INCLUDE = '#include "../mmq.cuh"\n\n'
    HEAD = "template <ggml_type type, int n = 1>\nvoid mul_mat_q_case(context & ctx) {\n"

    def trimmed(self, header=f"{HEAD}    whole();\n}}\n"):
        family = next(each for each in llama_cuda_source.FAMILIES if each.name == "mmq")
        with tempfile.TemporaryDirectory() as name:
            folder = pathlib.Path(name) / "template-instances"
            folder.mkdir()
            (folder.parent / family.header).write_text(header)
            both = "DECL_MMQ_CASE(GGML_TYPE_Q8_0);\nDECL_MMQ_CASE(GGML_TYPE_Q4_0);\n"
            (folder / "mmq-a.cu").write_text(f"{self.INCLUDE}{both}")
            (folder / "mmq-b.cu").write_text(f"{self.INCLUDE}DECL_MMQ_CASE(GGML_TYPE_Q4_K);\n")
            llama_cuda_source.trim(family, folder)
            return {path.name: path.read_text() for path in folder.iterdir()}

    def test_reached_instances_stay_and_the_others_abort(self):
        files = self.trimmed()
        self.assertEqual(set(files), {"mmq-a.cu", "mmq-left-out.cu"})
        self.assertEqual(files["mmq-a.cu"], f"{self.INCLUDE}DECL_MMQ_CASE(GGML_TYPE_Q8_0);\n")
        left_out = files["mmq-left-out.cu"]
        self.assertIn(f"{self.HEAD}    GGML_ABORT", left_out)
        self.assertIn("}\n\nDECL_MMQ_CASE(GGML_TYPE_Q4_0);\nDECL_MMQ_CASE(GGML_TYPE_Q4_K);\n", left_out)

    def test_a_source_of_another_form_is_an_error(self):
        with self.assertRaises(llama_cuda_source.BuildError):
            self.trimmed("template <ggml_type type>\nvoid another_name(context & ctx) {}\n")

    def test_what_the_cells_reach_is_kept(self):
        reached = {family.name: family.reached for family in llama_cuda_source.FAMILIES}
        for shape, coding in llama_cuda.MODELS.values():
            size = shape.hidden // shape.heads
            self.assertTrue(reached["fattn-mma"].fullmatch(f"{size}, {size}, 16, 4"))
            self.assertGreater(shape.heads // shape.kv_heads, 2)  # else llama.cpp groups 2 or none
            self.assertTrue(coding == random_gguf.BF16 or reached["mmq"].fullmatch("GGML_TYPE_Q8_0"))
        self.assertFalse(reached["fattn-mma"].fullmatch("64, 128, 16, 4"))
        for batch in {cell.batch for cell in CELLS.values() if cell.batch <= 16} | {16}:  # 16: the programs' warm-up
            self.assertTrue(reached["mmf"].fullmatch(str(batch)))


class RandomWeights(unittest.TestCase):
    def test_the_shape_is_that_of_our_side(self):
        config = json.loads((gpu_steps.CONFIG / "config.json").read_text())
        names = ("num_hidden_layers", "hidden_size", "intermediate_size", "num_attention_heads", "num_key_value_heads",
                 "vocab_size", "max_position_embeddings", "rope_theta", "tie_word_embeddings")
        self.assertEqual(random_gguf.LLAMA_8B, random_gguf.Shape(*(config[name] for name in names)))

    def test_a_file_holds_every_tensor_behind_the_last(self):
        for coding in (random_gguf.BF16, random_gguf.Q8_0):
            with tempfile.TemporaryDirectory() as name:
                path = pathlib.Path(name) / "new" / "tiny.gguf"
                random_gguf.write(path, TINY, coding)
                start, data_bytes = random_gguf.header(TINY, coding)
                self.assertEqual(path.stat().st_size, len(start) + data_bytes)
                self.assertTrue(path.read_bytes().startswith(start))
                self.assertEqual(len(start) % random_gguf.ALIGNMENT, 0)
                written = path.stat().st_mtime_ns
                random_gguf.write(path, TINY, coding)
                self.assertEqual(path.stat().st_mtime_ns, written)

    def test_offsets_are_aligned_where_a_size_is_not(self):
        start, _ = random_gguf.header(random_gguf.Shape(1, 36, 36, 2, 1, 7, 8, 1e4, tied=True), random_gguf.BF16)
        name = b"output_norm.weight"
        at = start.index(name) + len(name) + struct.calcsize("<IQI")
        self.assertEqual(struct.unpack_from("<Q", start, at)[0], 512)  # behind 7 rows of 36 weights of 2 bytes

    def test_weights_are_small_and_differ(self):
        block = random_gguf.random_block(random_gguf.BF16)
        values = [struct.unpack("<f", b"\0\0" + block[at:at + 2])[0] for at in range(0, 2000, 2)]
        self.assertTrue(all(math.isfinite(value) and 0 < abs(value) < 2 ** -5 for value in values))
        self.assertGreater(len(set(values)), 500)
        block = random_gguf.random_block(random_gguf.Q8_0)
        scales = [struct.unpack_from("<e", block, at)[0] for at in range(0, 34000, 34)]
        self.assertTrue(all(2 ** -12 <= scale < 2 ** -11 for scale in scales))


class Measuring(unittest.TestCase):
    def measured(self, *words):
        tiny = {name: (TINY, coding) for name, (_, coding) in llama_cuda.MODELS.items()}
        with (tempfile.TemporaryDirectory() as name, unittest.mock.patch.object(llama_cuda, "MODELS", tiny),
              contextlib.redirect_stdout(io.StringIO()) as shown):
            folder = pathlib.Path(name)
            for program in llama_cuda_source.PROGRAMS:
                (folder / program).write_text(PROGRAM)
                (folder / program).chmod(0o755)
            code = llama_cuda.main(["measure", "--programs", name, "--models", f"{name}/models",
                                    "--out", f"{name}/out", *words])
            lines = [json.loads(line) for line in (folder / "out/llama-cuda.jsonl").read_text().splitlines()]
            return code, lines, shown.getvalue()

    def test_a_failed_run_says_why_and_the_others_go_on(self):
        code, lines, shown = self.measured()
        *lines, summary = lines
        self.assertEqual((code, len(shown.splitlines()) <= 40), (1, True))
        self.assertEqual(summary["failed"], sum("error" in line for line in lines))
        for line in lines:
            if line["arm"] == ONE_BUFFER:
                self.assertIn("mul_mat_q_case: left out of this build", line["error"])
            else:
                self.assertEqual(len(line["samples"]), llama_cuda_cells.REPEATS)
        self.assertEqual([(line["cell"], line["arm"]) for line in lines],
                         [(cell.ours, run.arm) for run in llama_cuda_cells.runs() for cell in run.cells])

    def test_a_model_that_cannot_be_written_fails_its_own_runs_alone(self):
        write = random_gguf.write

        def full(path, shape, coding):
            if coding == random_gguf.Q8_0:
                raise OSError("no space left")
            write(path, shape, coding)

        with unittest.mock.patch.object(random_gguf, "write", full):
            lines = self.measured()[1][:-1]
        failed = {CELLS[line["cell"]].model for line in lines if "no space left" in line.get("error", "")}
        self.assertEqual(failed, {"8B q8_0"})

    def test_what_went_wrong_is_shown_and_no_usage_or_stack_behind_it(self):
        for said in ("error: invalid device: CUDA0", "mul_mat_q_case: left out of this build"):
            self.assertEqual(llama_cuda.gist(f"llama-bench: exit code 1\nloading\n{said}\n\nusage: -h\n"), said)
        self.assertEqual(llama_cuda.gist("llama-bench: no end within 60 s"), "llama-bench: no end within 60 s")

    def test_no_run_outlasts_its_time(self):
        _, lines, _ = self.measured("--seconds", "0")
        self.assertTrue(all("the 0 s of --seconds are used up" in line["error"] for line in lines[:-1]))
        with self.assertRaisesRegex(llama_cuda.RunError, "no end within 0 s"):
            llama_cuda.finished(["sleep", "9"], pathlib.Path("."), 0.1)


class Verdicts(unittest.TestCase):
    OURS = {"device": "NVIDIA H200", "commit": "abc"}
    SUMMARY = {"summary": True, "device": "NVIDIA H200", "driver": "580", "date": "2026-12-01 04:00", "failed": 0}

    def row(self, name, step_ms, arm="auto"):
        batch = CELLS[name].batch
        return {"cell": name, "arm": arm, "batch": batch, "decode_tokens_per_s": 1e3 * batch / step_ms,
                "prefill_tokens_per_s": 3e4}

    def line(self, name, arm, *samples):
        return {"cell": name, "arm": arm, "metric": CELLS[name].metric, "samples": list(samples)}

    def verdict(self, name, lines, rows):
        return llama_cuda_record.verdict(CELLS[name], lines, rows)

    def test_the_median_of_the_peers_best_arm_counts(self):
        lines = [self.line(DENSE, STREAMS, 9, 8.5, 20), self.line(DENSE, ONE_BUFFER, 10, 10, 10)]
        found = self.verdict(DENSE, lines, [self.row(DENSE, 5)])
        self.assertEqual((found.arm, found.theirs, found.grade), (STREAMS, 9, "yes"))
        self.assertAlmostEqual(found.ratio, 1.8)
        self.assertEqual(self.verdict(DENSE, lines, [self.row(DENSE, 5.5)]).grade, "**missed**: ratio 1.64")
        lines = [self.line(PROMPTS, STREAMS, 24e3), self.line(PROMPTS, LLAMA_BENCH, 25e3)]
        found = self.verdict(PROMPTS, lines, [self.row(PROMPTS, 5)])
        self.assertEqual((found.arm, found.ratio, found.grade), (LLAMA_BENCH, 1.2, "yes"))

    def test_sharing_is_held_against_our_own_steps_too(self):
        lines = [self.line(SHARED, STREAMS, 28), self.line(SHARED, ONE_BUFFER, 12)]
        found = self.verdict(SHARED, lines, [self.row(SHARED, 5.9), self.row(SHARED, 11.8, "off")])
        self.assertEqual((found.arm, found.grade), (ONE_BUFFER, "yes"))
        found = self.verdict(SHARED, lines, [self.row(SHARED, 6.1), self.row(SHARED, 10.4, "off")])
        self.assertEqual(found.grade, "**missed**: ours 6.10 ms, our off / auto 1.70")

    def test_a_side_that_is_missing_is_not_measured(self):
        failed = {"cell": DENSE, "arm": STREAMS, "metric": "ms a step", "error": "exit code -6\nout of memory"}
        self.assertEqual(self.verdict(DENSE, [failed], [self.row(DENSE, 5)]).grade, "**not measured**")
        self.assertEqual(self.verdict(DENSE, [self.line(DENSE, STREAMS, 9)], []).grade, "**not measured**")
        found = self.verdict(SHARED, [self.line(SHARED, STREAMS, 9)], [self.row(SHARED, 5)])
        self.assertEqual(found.grade, "**not measured**")

    def recorded(self, lines, ours):
        with (tempfile.TemporaryDirectory() as name, contextlib.redirect_stdout(io.StringIO()),
              contextlib.redirect_stderr(io.StringIO()) as errors):
            folder = pathlib.Path(name)
            (folder / "peer.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
            (folder / "ours.json").write_text(json.dumps(ours))
            code = llama_cuda.main(["record", f"{name}/peer.jsonl", "--ours", f"{name}/ours.json", "--out", name])
            page = folder / "h200-llama.md"
            return code, page.read_text() if page.exists() else errors.getvalue()

    def test_the_page_shows_every_cell_and_what_failed(self):
        rows = [self.row(name, 1) for name in CELLS] + [self.row(SHARED, 2, "off")]
        lines = [self.line(name, STREAMS, 10, 9, 11) for name in CELLS if name != PROMPTS]
        lines += [self.line(PROMPTS, STREAMS, 2e4)]
        lines += [{"cell": DENSE, "arm": ONE_BUFFER, "metric": "ms a step", "error": "exit code -6\nno memory"}]
        code, page = self.recorded([*lines, self.SUMMARY], self.OURS | {"rows": rows})
        self.assertEqual(code, 0)
        self.assertIn(f"| {DENSE} | ms a step | 10.00 | streams | 1.00 | 10.00 | ratio 1.7 | yes |", page)
        self.assertIn(f"| {DENSE} | ms a step | 10.00 (9.00..11.00) | failed | - |", page)
        self.assertIn(f"`{DENSE}` failed in one buffer: `exit code -6 no memory`", page)
        code, page = self.recorded([*lines[1:], self.SUMMARY], self.OURS | {"rows": rows})
        self.assertEqual(code, 1)
        self.assertIn("| - | - | 1.00 | - | ratio 1.1 | **not measured** |", page)

    def test_results_of_two_machines_or_without_an_end_are_refused(self):
        other = self.SUMMARY | {"device": "none"}
        for lines, said in (([other], "llama.cpp ran on none"), ([], "end without a summary")):
            code, text = self.recorded(lines, self.OURS | {"rows": []})
            self.assertEqual(code, 2)
            self.assertIn(said, text)


if __name__ == "__main__":
    unittest.main()
