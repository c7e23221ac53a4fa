#!/usr/bin/env python3
"""llama.cpp's CUDA back end beside headwater on one GPU: whole steps in the cells of tools/gpu_steps.py.

  llama_cuda.py prepare                 fetches llama.cpp and packs what is needed: build/peers/llama-cuda.tar.gz
  llama_cuda.py build                   builds that with nvcc, cmake and ninja; needs no network
  llama_cuda.py measure --out FOLDER    writes random weights and FOLDER/llama-cuda.jsonl, a line for each cell and arm
  llama_cuda.py record FOLDER/llama-cuda.jsonl    joins it with h200-step.json and writes h200-llama.md and .json

measure goes on after a failed run, whose lines say why, and exits with 1. record exits with 1 when a must is missed or
not measured. 2: nothing was done, for the reason printed.
"""

import argparse
import concurrent.futures
import datetime
import json
import os
import pathlib
import re
import subprocess
import sys
import time

import llama_cuda_cells
import llama_cuda_record
import llama_cuda_source
import random_gguf

ROOT = pathlib.Path(__file__).resolve().parents[2]
PEERS = ROOT / "build/peers"
MODELS = {"8B bf16": (random_gguf.LLAMA_8B, random_gguf.BF16), "8B q8_0": (random_gguf.LLAMA_8B, random_gguf.Q8_0),
          "135M bf16": (random_gguf.SMOLLM2_135M, random_gguf.BF16)}
RUN_SECONDS = 60  # of one process; the slowest takes about 15
LIBRARIES = "/usr/local/cuda/lib64"  # where CUDA's own are, unless LD_LIBRARY_PATH says it first


class RunError(Exception):
    """A process failed or took too long."""


def finished(command, programs, seconds):
    words = [str(word) for word in command]
    paths = [str(programs / "lib"), os.environ.get("LD_LIBRARY_PATH", ""), LIBRARIES]
    environment = os.environ | {"LD_LIBRARY_PATH": ":".join(filter(None, paths))}
    try:
        done = subprocess.run(words, capture_output=True, text=True, errors="replace", timeout=seconds, env=environment)
    except subprocess.TimeoutExpired as late:
        raise RunError(f"{' '.join(words)}: no end within {seconds:.0f} s") from late
    if done.returncode != 0:
        raise RunError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-4000:]}")
    return done


def model_file(folder, name):
    path = folder / f"random-{name.replace(' ', '-')}.gguf"
    random_gguf.write(path, *MODELS[name])
    return path


def model_files(folder):
    """For each name the future, done, of a file with random weights; those that are missing are written at once."""
    with concurrent.futures.ThreadPoolExecutor() as pool:
        return {name: pool.submit(model_file, folder, name) for name in MODELS}


def lines_of(run, models, arguments, end):
    """A line for each cell of a run, with its samples or with what went wrong."""
    every = [{"cell": cell.ours, "arm": run.arm, "metric": cell.metric} for cell in run.cells]
    try:
        model = models[run.cells[0].model].result()
        seconds = min(RUN_SECONDS, end - time.monotonic())
        if seconds <= 0:
            raise RunError(f"not run: the {arguments.seconds} s of --seconds are used up")
        command = llama_cuda_cells.command(run, arguments.programs, model)
        done = finished(command, arguments.programs, seconds)
    except (OSError, RunError) as failure:
        return [line | {"error": str(failure)} for line in every]
    for line, cell in zip(every, run.cells):
        try:
            line["samples"] = llama_cuda_cells.samples(run, cell, done.stdout)
        except (llama_cuda_cells.CellError, ValueError, KeyError) as failure:
            line["error"] = f"{' '.join(map(str, command))}: {failure}\n{done.stdout[-1000:]}\n{done.stderr[-1000:]}"
    return every


def device():
    """Name and driver of the first GPU."""
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    try:
        done = subprocess.run(query, capture_output=True, text=True, check=True)
        name, driver = done.stdout.split("\n")[0].split(", ")
    except (OSError, ValueError, subprocess.CalledProcessError):
        return {"device": "none", "driver": "none"}
    return {"device": name, "driver": driver}


def gist(error):
    """The line of an error that says most: llama.cpp prints its usage or a stack after it."""
    lines = error.strip().splitlines()
    telling = [line for line in lines[1:] if re.search("error|left out of this build", line, re.IGNORECASE)]
    return (telling or lines[-1:])[0]


def shown(line):
    if "error" in line:
        return f"{line['cell']} | {line['arm']} | failed: {gist(line['error'])[:160]}"
    return f"{line['cell']} | {line['arm']} | {' '.join(f'{value:.2f}' for value in line['samples'])} {line['metric']}"


def measure(arguments):
    start, failed = time.monotonic(), 0
    arguments.out.mkdir(parents=True, exist_ok=True)
    models = model_files(arguments.models)
    print(f"weights of {len(models)} models are there after {time.monotonic() - start:.0f} s", flush=True)
    with open(arguments.out / "llama-cuda.jsonl", "w", buffering=1) as results:
        for run in llama_cuda_cells.runs():
            for line in lines_of(run, models, arguments, start + arguments.seconds):
                results.write(json.dumps(line) + "\n")
                print(shown(line), flush=True)
                failed += "error" in line
        summary = {"summary": True, "date": datetime.datetime.now().isoformat(" ", "minutes"),
                   "seconds": round(time.monotonic() - start), "failed": failed}
        results.write(json.dumps(summary | device()) + "\n")
    print(f"{failed} lines failed; {summary['seconds']} s; {results.name}")
    return 1 if failed else 0


def record(arguments):
    lines = [json.loads(line) for line in arguments.peer.read_text().splitlines()]
    ours = json.loads(arguments.ours.read_text())
    verdicts = llama_cuda_record.judge(lines, ours)
    page = arguments.out / "h200-llama.md"
    page.write_text(llama_cuda_record.page(lines, ours, verdicts))
    page.with_suffix(".json").write_text("".join(json.dumps(line) + "\n" for line in lines))
    print(llama_cuda_record.table(verdicts))
    return 0 if all(verdict.grade == "yes" for verdict in verdicts) else 1


def parse(words):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    verbs = parser.add_subparsers(dest="verb", required=True)
    verbs.add_parser("prepare").add_argument("--folder", type=pathlib.Path, default=PEERS)
    build = verbs.add_parser("build")
    build.add_argument("--source", type=pathlib.Path, default=PEERS / llama_cuda_source.ARCHIVE,
                       help="what prepare packed")
    build.add_argument("--folder", type=pathlib.Path, default=PEERS)
    build.add_argument("--jobs", type=int, default=os.cpu_count())
    measured = verbs.add_parser("measure")
    measured.add_argument("--out", type=pathlib.Path, required=True)
    measured.add_argument("--programs", type=pathlib.Path, default=PEERS / llama_cuda_source.PROGRAM_FOLDER,
                          help="folder of llama-bench and llama-batched-bench, with their libraries in lib/ if need be")
    measured.add_argument("--models", type=pathlib.Path, default=PEERS / "models",
                          help="25 GB are written there; what is there is used again")
    measured.add_argument("--seconds", type=int, default=300, help="after which no run begins (default 300)")
    recorded = verbs.add_parser("record")
    recorded.add_argument("peer", type=pathlib.Path, help="what measure wrote")
    recorded.add_argument("--ours", type=pathlib.Path, default=ROOT / "docs/benchmarks/h200-step.json")
    recorded.add_argument("--out", type=pathlib.Path, default=ROOT / "docs/benchmarks")
    return parser.parse_args(words)


def main(words):
    arguments = parse(words)
    try:
        if arguments.verb == "prepare":
            print(llama_cuda_source.prepare(arguments.folder))
        elif arguments.verb == "build":
            print(llama_cuda_source.build(arguments.source, arguments.folder, arguments.jobs))
        else:
            return measure(arguments) if arguments.verb == "measure" else record(arguments)
    except (OSError, llama_cuda_source.BuildError, llama_cuda_record.RecordError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
