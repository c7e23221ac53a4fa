#!/usr/bin/env python3
"""Times whole steps on a GPU: `headwater bench step` on a real shape with random weights and on the default model.

    tools/gpu_steps.py [--headwater build/cuda/headwater] [--model FILE] [--out docs/benchmarks] [--commit HASH]

Each cell is a process of its own with three repetitions, of which the median counts (the first one also records graphs and
chooses products). Writes h200-step.json and h200-step.md, after every cell, so that what fails or is cut short takes no
other cell along. Exit code 1: a cell failed.
"""
import argparse
import json
import pathlib
import subprocess
import sys

CONFIG = pathlib.Path(__file__).parent.parent / "bench/configs/llama-3.1-8b"
# name, flags, must: of step_ms or of off / auto. Musts follow from llama.cpp on the same card.
DENSE = ["--shared-tokens", 0, "--prompt-tokens", 128, "--max-tokens", 64, "--max-num-batched-tokens", 2048, "--max-model-len", 4096]
SHARED = ["--max-num-batched-tokens", 2048, "--arms", "off,auto"]


def cells(model):
    for batch, dtype, must in [(1, "bf16", 4.37), (16, "bf16", 5.0), (64, "bf16", 5.7), (1, "q8_0", 3.64), (16, "q8_0", 5.0), (64, "q8_0", 5.3)]:
        yield f"8B {dtype}, {batch} alone", [*dummy(dtype), "--batch", batch, *DENSE], f"{must} ms"
    yield "8B bf16, 64 behind 8,192", [*dummy("bf16"), "--batch", 64, "--shared-tokens", 8192, "--prompt-tokens", 64, "--max-tokens", 40,
                                       "--max-model-len", 16384, *SHARED], "auto 6 ms, off / auto 1.8"
    yield "8B bf16, prompts of 2,048", [*dummy("bf16"), "--batch", 8, "--shared-tokens", 0, "--prompt-tokens", 2048, "--max-tokens", 8,
                                        "--max-model-len", 4096, *SHARED], "29,500 prompt tokens/s"
    if model:
        yield "SmolLM2-135M Q4_1, 64 behind 2,048", ["-m", model, "--batch", 64, "--shared-tokens", 2048, "--prompt-tokens", 32,
                                                    "--max-tokens", 64, *SHARED], "1.5 ms"


def dummy(dtype):
    return ["-m", CONFIG, "--load-format", "dummy", "--dummy-dtype", dtype]


def run(binary, flags):
    command = [str(binary), "bench", "step", "--backend", "cuda", "--reps", "3", *map(str, flags), "--json", "-"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    lines = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    arms = [line for line in lines if "decode_tokens_per_s" in line]
    if done.returncode != 0 or not arms:
        raise RuntimeError(f"{' '.join(command)}: {done.returncode}\n{done.stderr[-600:]}")
    return arms


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--headwater", default="build/cuda/headwater")
    parser.add_argument("--model", default="models/SmolLM2-135M-Instruct.Q4_1.gguf")
    parser.add_argument("--out", default="docs/benchmarks", type=pathlib.Path)
    parser.add_argument("--commit", default="unknown")
    options = parser.parse_args()
    model = options.model if pathlib.Path(options.model).exists() else None
    device = subprocess.run(["nvidia-smi", "--query-gpu=name", "--format=csv,noheader"], capture_output=True, text=True).stdout.strip()
    options.out.mkdir(parents=True, exist_ok=True)
    rows, table, failed = [], [], 0
    for name, flags, must in cells(model):
        try:
            arms = run(options.headwater, flags)
        except (RuntimeError, subprocess.TimeoutExpired) as failure:
            print(f"error: {name}: {failure}", file=sys.stderr, flush=True)
            table.append(f"| {name} | failed | | | | {must} |")
            failed += 1
            arms = []
        rows += [{"cell": name, **arm} for arm in arms]
        for arm in arms:
            step_ms = 1e3 * arm["batch"] / arm["decode_tokens_per_s"]
            table.append(f"| {name} | {arm['arm']}, {arm['path']} | {step_ms:.2f} | {arm['decode_tokens_per_s']:,.0f} | "
                         f"{arm['prefill_tokens_per_s']:,.0f} | {must} |")
            print(table[-1], flush=True)
        write(options, device, rows, table)
    return 1 if failed else 0


def write(options, device, rows, table):
    (options.out / "h200-step.json").write_text(json.dumps({"device": device, "commit": options.commit, "rows": rows}, indent=1) + "\n")
    (options.out / "h200-step.md").write_text("\n".join([
        "# Whole steps on a GPU", "",
        f"{device}, commit {options.commit}, host included: `tools/gpu_steps.py` (its docstring says how), which wrote this page.",
        "Random weights of Llama-3.1-8B's shape; contexts of 128 to 192 tokens where chats are alone. In the first arm of a process",
        "prompts also pay for what happens once (choosing products).", "",
        "| cell | arm, path | ms a step | tokens/s | prompt tokens/s | must |", "|---|---|---|---|---|---|", *table, ""]))


if __name__ == "__main__":
    sys.exit(main())
