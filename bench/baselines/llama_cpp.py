#!/usr/bin/env python3
"""headwater and llama.cpp on this machine's CPU: same model file, same threads, runs interleaved cell by cell.

Writes docs/benchmarks/cpu-<processor>.md and .json (JSON lines, the last with "summary": true). Exit code 1: a ratio
that is a must was missed, or other work took more than a tenth of the cores while a cell ran; 2: a program failed, or a
cell did not run what its name says (a shared one shares nothing).

A cell is one program run per sample on each side. llama.cpp runs once per option (flash attention on and off) and its
best option counts. Its `-pps -kvu` keeps one copy of a shared prompt in one KV buffer. `-pps` alone copies the prompt's
KV into every sequence, so a decode step reads one copy per sequence: that is its arm with nothing shared.

Run it on a quiet machine: llama.cpp, whose threads wait for each other in loops, loses far more than the share of the
cores that other work takes.
"""

import argparse
import dataclasses
import datetime
import json
import os
import pathlib
import subprocess
import sys

import llama_cpp_build
import llama_cpp_record

ROOT = pathlib.Path(__file__).resolve().parents[2]
MODEL = "models/SmolLM2-135M-Instruct.Q4_1.gguf"
FLASH_ATTENTION = ("on", "off")


class MeasureError(Exception):
    """A run failed or measured something else than its cell says."""


@dataclasses.dataclass(frozen=True)
class Cell:
    name: str
    title: str
    must: float  # least ratio ours / theirs
    aim: float
    batch: int  # sequences
    shared: int  # prompt tokens common to all of them
    prompt: int  # prompt tokens of each one's own
    generate: int  # tokens decoded per sequence
    peer: str  # program of llama.cpp
    metric: str = "decode"  # or "prefill"; tokens/s

    @property
    def peer_prompt(self):
        return self.shared or self.prompt


def chat(tokens):
    return Cell(f"chat-{tokens}", f"decode, 1 chat behind {tokens:,} tokens", 2, 3, 1, 0, tokens, 32,
                "llama-batched-bench")


def shared(batch, tokens):
    return Cell(f"shared-{tokens}-b{batch}", f"decode, B {batch} behind one prompt of {tokens:,}", 3, 5, batch, tokens,
                8, 32, "llama-batched-bench")


def flat(batch, tokens):
    return Cell(f"flat-{tokens}-b{batch}", f"decode, B {batch}, {tokens:,} tokens each, nothing shared", 3, 5, batch, 0,
                tokens, 32, "llama-batched-bench")


def prefill(tokens):
    return Cell(f"prefill-{tokens}", f"prefill, {tokens:,} tokens", 1.3, 3, 1, 0, tokens, 2, "llama-bench", "prefill")


CELLS = (
    Cell("chat-short", "decode, 1 chat, short context", 1.1, 1.5, 1, 0, 8, 128, "llama-bench"), chat(2048), chat(8000),
    *(shared(batch, 2048) for batch in (4, 8, 16, 32)), shared(8, 8000),
    *(flat(batch, 2048) for batch in (4, 8, 16, 32)),
    prefill(512), prefill(2048))
QUICK = ("chat-short", "chat-2048", "shared-2048-b8", "flat-2048-b4", "prefill-512")


def json_lines(text):
    return [json.loads(line) for line in text.splitlines() if line.startswith("{")]


def output_of(command):
    words = [str(word) for word in command]
    done = subprocess.run(words, capture_output=True, text=True, check=False, cwd=ROOT)
    if done.returncode != 0:
        raise MeasureError(f"{' '.join(words)}: exit code {done.returncode}\n{done.stderr[-2000:]}")
    return done.stdout


def our_command(program, cell, model, threads):
    return [program, "bench", "step", "-m", model, "-t", threads, "--batch", cell.batch, "--shared-tokens", cell.shared,
            "--prompt-tokens", cell.prompt, "--max-tokens", cell.generate, "--shared-prefix", "auto", "--reps", 1,
            "--json", "-"]


def our_sample(cell, text):
    """The arm's line and the summary; an arm that shared something else than its cell says is an error."""
    lines = json_lines(text)
    arms = [line for line in lines if line.get("arm") == "auto" and "kind" not in line]  # kinds of work have lines too
    if len(arms) != 1 or not lines[-1].get("summary"):
        raise MeasureError(f"{cell.name}: one line of arm auto and a summary expected, got: {text[:500]}")
    path, members = ("shared", cell.batch) if cell.shared else ("flat", 0)
    ran = tuple(arms[0][key] for key in ("batch", "path", "members"))
    if ran != (cell.batch, path, members):
        raise MeasureError(f"{cell.name}: batch {cell.batch}, path {path}, {members} members expected; headwater ran "
                           f"{ran}")
    return arms[0], lines[-1]


def peer_command(folder, cell, flash_attention, model, threads):
    common = [folder / cell.peer, "-m", model, "-t", threads, "-fa", flash_attention]
    if cell.peer == "llama-bench":
        prompt, generate = (cell.prompt, 0) if cell.metric == "prefill" else (0, cell.generate)
        return [*common, "-p", prompt, "-n", generate, "-r", 1, "-o", "jsonl"]
    sharing = ["-pps", "-kvu"] if cell.shared else ["-pps"] if cell.batch > 1 else []
    # One token of slack in each sequence: without -kvu a dummy token follows the copies of the prompt.
    context = copies(cell) * cell.peer_prompt + cell.batch * (cell.generate + 1)
    return [*common, "-npp", cell.peer_prompt, "-ntg", cell.generate, "-npl", cell.batch, "-c", context, *sharing,
            "--output-format", "jsonl"]


def copies(cell):
    """How often a prompt lies in llama.cpp's KV cache."""
    return 1 if cell.shared else cell.batch


def peer_sample(cell, text):
    """Tokens/s; a KV cache of another size than sharing, or not sharing, takes is an error."""
    lines = json_lines(text)
    if len(lines) != 1:
        raise MeasureError(f"{cell.name}: one line expected from {cell.peer}, got: {text[:500]}")
    if cell.peer == "llama-bench":
        return lines[0]["avg_ts"]
    expected = (cell.batch, copies(cell) * cell.peer_prompt + cell.batch * cell.generate)
    ran = (lines[0]["pl"], lines[0]["n_kv"])
    if ran != expected:
        raise MeasureError(f"{cell.name}: B and N_KV {expected} expected with {copies(cell)} copies of the prompt in "
                           f"the KV cache; {cell.peer} reports {ran}")
    return lines[0]["speed_tg"]


def cpu_seconds(stat, ticks_per_s):
    """Seconds that the cores were busy, time stolen by the hypervisor included, from the text of /proc/stat."""
    user, nice, system, _, _, irq, softirq, steal = map(int, stat.split("\n")[0].split()[1:9])
    return (user + nice + system + irq + softirq + steal) / ticks_per_s


class OtherWork:
    """The share of the cores that neither side used since this was created."""

    def __init__(self):
        self.start = self.now()

    @staticmethod
    def now():
        times = os.times()
        busy = cpu_seconds(pathlib.Path("/proc/stat").read_text(), os.sysconf("SC_CLK_TCK"))
        return busy - sum(times[:4]), times.elapsed  # ours: this program's and its children's

    def share(self):
        (busy, elapsed), (busy_before, elapsed_before) = self.now(), self.start
        return max(busy - busy_before, 0) / (elapsed - elapsed_before) / os.cpu_count()


def measure(cell, arguments, peer_folder):
    """Samples of both sides, interleaved: ours, theirs with each option, ours, ..."""
    others = OtherWork()
    result = {"cell": cell.name, "title": cell.title, "must": cell.must, "aim": cell.aim, "batch": cell.batch,
              "shared_tokens": cell.shared, "prompt_tokens": cell.prompt, "max_tokens": cell.generate,
              "metric": f"{cell.metric}_tokens_per_s", "ours": [],
              "theirs": {f"-fa {option}": [] for option in FLASH_ATTENTION}}
    for rep in range(arguments.reps):
        command = our_command(arguments.headwater, cell, arguments.model, arguments.threads)
        arm, run = our_sample(cell, output_of(command))
        result["ours"].append(arm[result["metric"]])
        for option in FLASH_ATTENTION:
            command = peer_command(peer_folder / "bin", cell, option, arguments.model, arguments.threads)
            result["theirs"][f"-fa {option}"].append(peer_sample(cell, output_of(command)))
        theirs = ", ".join(f"{option} {samples[-1]:.1f}" for option, samples in result["theirs"].items())
        print(f"{cell.name} {rep + 1}/{arguments.reps}: ours {result['ours'][-1]:.1f}, theirs {theirs} tokens/s",
              file=sys.stderr, flush=True)
    return result | {key: arm[key] for key in ("path", "groups", "members", "shared_pages")} | {
        key: run[key] for key in ("target", "memory_bytes_per_s")} | {"others_cpu_share": others.share()} | (
        llama_cpp_record.verdict(result))


def commit():
    modified = output_of(["git", "status", "--porcelain", "--untracked-files=no"])
    return output_of(["git", "rev-parse", "--short", "HEAD"]).strip() + (" with changes" if modified else "")


def summary_of(results, arguments, peer_folder, processor):
    command = f"python3 bench/baselines/llama_cpp.py --reps {arguments.reps}"
    command += f" --only {','.join(cell.name for cell in arguments.cells)}" if len(arguments.cells) < len(CELLS) else ""
    return {"summary": True, "command": command, "commit": commit(), "date": datetime.date.today().isoformat(),
            "processor": f"{processor['vendor']}-{processor['family']}-{processor['model']}",
            "processor_name": processor["name"], "cores": processor["cores"], "threads": arguments.threads,
            "target": results[-1]["target"],
            "memory_bytes_per_s": max(result["memory_bytes_per_s"] for result in results),
            "others_cpu_share": max(result["others_cpu_share"] for result in results),
            "model": pathlib.Path(arguments.model).name, "reps": arguments.reps,
            "peer": llama_cpp_build.describe(peer_folder),
            "missed": [result["cell"] for result in results if result["ok"] == "no"],
            "disturbed": [result["cell"] for result in results if llama_cpp_record.is_disturbed(result)]}


def write(arguments, results, summary):
    page = llama_cpp_record.page(results, summary)
    lines = "".join(json.dumps(line) + "\n" for line in [*results, summary])
    if arguments.out:
        base = f"{arguments.out}/cpu-{summary['processor']}"
        pathlib.Path(f"{base}.md").write_text(page)
        pathlib.Path(f"{base}.json").write_text(lines)
        print(f"wrote {base}.md and .json", file=sys.stderr)
    if arguments.json == "-":
        sys.stdout.write(lines)
    elif arguments.json:
        pathlib.Path(arguments.json).write_text(lines)
    elif not arguments.out:
        print(page)


def parse(words):
    parser = argparse.ArgumentParser(description="Compares headwater with llama.cpp on this machine's CPU.")
    parser.add_argument("--reps", type=int, help="samples of each cell and side (default 5)")
    parser.add_argument("--quick", action="store_true",
                        help=f"one sample of {', '.join(QUICK)}; what it finds does not set the exit code")
    parser.add_argument("--only", metavar="NAME,..", help="these cells: " + ", ".join(cell.name for cell in CELLS))
    parser.add_argument("--json", metavar="FILE", help="JSON lines also into FILE, - for standard output")
    parser.add_argument("--out", metavar="FOLDER", help="folder of the record (default docs/benchmarks; with --quick "
                        "or --only the record is printed)")
    parser.add_argument("--model", "-m", default=MODEL)
    parser.add_argument("--threads", "-t", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--headwater", metavar="PATH", type=pathlib.Path, default=ROOT / "build/release/headwater")
    parser.add_argument("--peer-build", metavar="FOLDER", type=pathlib.Path,
                        help="a build folder of llama.cpp (default: fetched and built under build/peers)")
    arguments = parser.parse_args(words)
    every = [cell.name for cell in CELLS]
    names = arguments.only.split(",") if arguments.only else QUICK if arguments.quick else every
    if unknown := set(names) - set(every):
        parser.error(f"no cell is called {', '.join(sorted(unknown))}")
    arguments.cells = [cell for cell in CELLS if cell.name in names]
    arguments.reps = arguments.reps or (1 if arguments.quick else 5)
    if not (arguments.out or arguments.quick or arguments.only):
        arguments.out = ROOT / "docs/benchmarks"
    return arguments


def main(words):
    arguments = parse(words)
    processor = llama_cpp_build.processor(pathlib.Path("/proc/cpuinfo").read_text())
    try:
        peer_folder = arguments.peer_build or llama_cpp_build.build(ROOT / "build/peers", processor["flags"])
        results = [measure(cell, arguments, peer_folder.resolve()) for cell in arguments.cells]
        summary = summary_of(results, arguments, peer_folder, processor)
    except (MeasureError, llama_cpp_build.BuildError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    write(arguments, results, summary)
    findings = llama_cpp_record.findings(summary)
    for finding in findings:
        print(finding, file=sys.stderr)
    return 1 if findings and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
