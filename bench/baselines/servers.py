#!/usr/bin/env python3
"""headwater serve and llama-server on this machine's CPU: same model file, same threads, runs interleaved.

The workload: 16 chats behind one system prompt of 2,000 tokens, questions of 32 tokens, 64 tokens an answer. A run starts
a server, and `headwater bench serve` drives it over HTTP: a cold wave of the 16 at once (cold16), a second wave with new
questions (warm16), then 8 chats one after another (c1), twice. The server's peak resident memory is read before it is
ended. llama-server runs once per option (flash attention as it chooses, and off) and its best one counts.

Writes docs/benchmarks/cpu-servers-<processor>.md and .json (JSON lines, the last with "summary": true). Exit code 1: a
must was missed, or other work took more than a tenth of the cores during a run; 2: a program failed.
"""

import argparse
import datetime
import json
import os
import pathlib
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

import llama_cpp
import llama_cpp_build
import servers_record

ROOT = llama_cpp.ROOT
LOAD = ("--endpoint", "chat", "--shared-prefix-tokens", "2000", "--prompt-tokens", "32", "--max-tokens", "64",
        "--concurrency", "16,1", "--requests", "8", "--reps", "2", "--warm-up", "0", "--metrics", "--json", "-")
PEER_OPTIONS = {"-fa auto": ("-fa", "auto"), "-fa off": ("-fa", "off")}
START_SECONDS = 120


class Server:
    """A server program that accepts at `url`; ended with the block."""

    def __init__(self, command, url):
        self.command, self.url = [str(word) for word in command], url

    def __enter__(self):
        self.process = subprocess.Popen(self.command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, cwd=ROOT)
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline and self.process.poll() is None:
            try:
                with urllib.request.urlopen(f"{self.url}/health", timeout=5) as health:
                    if health.status == 200:
                        return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.05)
        self.__exit__()
        raise llama_cpp.MeasureError(f"{' '.join(self.command)}: not ready, exit code {self.process.returncode}")

    def __exit__(self, *_):
        self.process.terminate()
        try:
            self.process.wait(20)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()

    def peak_bytes(self):
        return peak_bytes(pathlib.Path(f"/proc/{self.process.pid}/status").read_text())


def peak_bytes(status):
    """Peak resident memory from the text of /proc/<pid>/status."""
    return int(re.search(r"^VmHWM:\s+(\d+) kB$", status, re.MULTILINE)[1]) * 1024


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def our_command(arguments, port):
    return [arguments.headwater, "serve", "-m", arguments.model, "-t", arguments.threads, "--host", "127.0.0.1",
            "--port", port, "--log-level", "warn"]


def peer_command(arguments, folder, option, port):
    return [folder / "bin" / "llama-server", "-m", arguments.model, "-c", 40960, "-np", 16, "-t", arguments.threads,
            "-tb", arguments.threads, "--host", "127.0.0.1", "--port", port, *PEER_OPTIONS[option]]


def waves_of(text):
    """The waves of a run from the JSON lines of its load; one that was not answered whole is an error."""
    lines = llama_cpp.json_lines(text)
    waves = {}
    for line in lines:
        if line.get("summary"):
            continue
        if line["errors"] or line["completed"] != line["requests"] or line["output_tokens"] != 64 * line["requests"]:
            raise llama_cpp.MeasureError(f"a wave was not answered whole: {json.dumps(line)[:500]}")
        name = "c1" if line["concurrency"] == 1 else "cold16" if line["repetition"] == 1 else "warm16"
        waves[name] = {"seconds": line["seconds"], "tokens_per_s": line["output_tokens_per_s"],
                       "ttft_p50_ms": line["ttft_ms"]["p50"], "ttft_p99_ms": line["ttft_ms"]["p99"],
                       "tpot_p50_ms": line["tpot_ms"]["p50"], "prompt_tokens": line["prompt_tokens"],
                       "cached_tokens": line["cached_tokens"], "requests": line["requests"],
                       "path_deltas": line["path_deltas"]}
    if set(waves) != {"cold16", "warm16", "c1"}:
        raise llama_cpp.MeasureError(f"waves cold16, warm16 and c1 expected, got {text[:500]}")
    return waves


def run_once(arguments, engine, command, port):
    others = llama_cpp.OtherWork()
    with Server(command, f"http://127.0.0.1:{port}") as server:
        text = llama_cpp.output_of([arguments.headwater, "bench", "serve", "--url", server.url, *LOAD])
        run = {"engine": engine, "waves": waves_of(text), "peak_bytes": server.peak_bytes()}
    run["others_cpu_share"] = others.share()
    print(f"{engine}: " + ", ".join(f"{name} {wave['seconds']:.1f} s, {wave['tokens_per_s']:.1f} tokens/s, ttft p50 "
                                    f"{wave['ttft_p50_ms']:.0f} ms" for name, wave in run["waves"].items()) +
          f"; peak {run['peak_bytes'] / 1e6:.0f} MB", file=sys.stderr, flush=True)
    return run


def measure(arguments, folder):
    """Runs of both sides in turn: ours, theirs with each option, ours, ..."""
    runs = []
    for _ in range(arguments.reps):
        port = free_port()
        runs.append(run_once(arguments, servers_record.OURS, our_command(arguments, port), port))
        for option in arguments.options:
            port = free_port()
            engine = f"llama-server {option}"
            runs.append(run_once(arguments, engine, peer_command(arguments, folder, option, port), port))
    return runs


def parse(words):
    parser = argparse.ArgumentParser(description="Compares headwater serve with llama-server on this machine's CPU.")
    parser.add_argument("--reps", type=int, default=3, help="runs of each side (default 3)")
    parser.add_argument("--quick", action="store_true",
                        help="one run of each side, llama-server with -fa auto only; prints, and sets no exit code")
    parser.add_argument("--out", metavar="FOLDER", type=pathlib.Path, help="folder of the record (default "
                        "docs/benchmarks; with --quick it is printed)")
    parser.add_argument("--model", "-m", default=llama_cpp.MODEL)
    parser.add_argument("--threads", "-t", type=int, default=len(os.sched_getaffinity(0)))
    parser.add_argument("--headwater", metavar="PATH", type=pathlib.Path, default=ROOT / "build/release/headwater")
    parser.add_argument("--peer-build", metavar="FOLDER", type=pathlib.Path,
                        help="a build folder of llama.cpp with llama-server (default: built under build/peers)")
    arguments = parser.parse_args(words)
    arguments.options = list(PEER_OPTIONS)[:1] if arguments.quick else list(PEER_OPTIONS)
    arguments.reps = 1 if arguments.quick else arguments.reps
    if not (arguments.out or arguments.quick):
        arguments.out = ROOT / "docs/benchmarks"
    return arguments


def main(words):
    arguments = parse(words)
    processor = llama_cpp_build.processor(pathlib.Path("/proc/cpuinfo").read_text())
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(143))  # as an exception, which ends the server too
    try:
        folder = arguments.peer_build or llama_cpp_build.build(ROOT / "build/peers", processor["flags"],
                                                               ("llama-server",))
        runs = measure(arguments, folder.resolve())
        summary = {"summary": True, "command": f"python3 bench/baselines/servers.py --reps {arguments.reps}",
                   "commit": llama_cpp.commit(), "date": datetime.date.today().isoformat(),
                   "processor": f"{processor['vendor']}-{processor['family']}-{processor['model']}",
                   "processor_name": processor["name"], "cores": processor["cores"], "threads": arguments.threads,
                   "model": pathlib.Path(arguments.model).name, "reps": arguments.reps,
                   "peer": llama_cpp_build.describe(folder, "llama-server")} | servers_record.verdict(runs)
    except (llama_cpp.MeasureError, llama_cpp_build.BuildError) as failure:
        print(f"error: {failure}", file=sys.stderr)
        return 2
    page = servers_record.page(runs, summary)
    if arguments.out:
        base = arguments.out / f"cpu-servers-{summary['processor']}"
        base.with_suffix(".md").write_text(page)
        base.with_suffix(".json").write_text("".join(json.dumps(line) + "\n" for line in [*runs, summary]))
    else:
        print(page)
    findings = servers_record.findings(summary)
    for finding in findings:
        print(finding, file=sys.stderr)
    return 1 if findings and not arguments.quick else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
