#!/usr/bin/env python3
"""How long the device is idle in steps of steady decoding: runs a command without and with a trace of the device, and reports.

  ninja -C build/cuda headwater_device_trace
  device_idle.py --library build/cuda/bench/libheadwater_device_trace.so -- build/cuda/headwater bench step ... --json -

--kind graphs (the default) times whole launches of graphs, at little cost; --kind kernels every kernel, which shows gaps inside
launches and stretches them. The report says how long a step took without and with the trace, if the command is `bench step`
with one arm and `--json -`; where these differ, the trace is part of what is seen. tools/device_trace.py says what is counted.

--cell NAME --out FOLDER puts the report into FOLDER/h200-idle.md and .json, beside those of the same commit and device.
--read FILE reports on a trace that --keep FILE left, and runs nothing. Exit code 1: no report, with the reason.
"""
import argparse
import ctypes
import datetime
import json
import os
import pathlib
import subprocess
import sys
import tempfile

import device_trace

NAME = "h200-idle"


def step_ms_of(output):
    """What `bench step --json -` says a step took, its median; None where it does not say."""
    found = []
    for text in output.splitlines():
        try:
            value = json.loads(text)
        except ValueError:
            continue
        if isinstance(value, dict) and "decode_tokens_per_s" in value:
            found.append(1e3 * value["batch"] / value["decode_tokens_per_s"])
    if len(found) > 1:
        raise device_trace.TraceError(f"the command ran {len(found)} arms, whose steps a trace cannot tell apart; give --arms one of them")
    return found[0] if found else None


def run(command, environment, seconds):
    """Its standard output."""
    try:
        done = subprocess.run(command, env=environment, capture_output=True, text=True, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise device_trace.TraceError(f"{command[0]} took more than {seconds:g} s; --timeout says how long it may") from None
    except OSError as problem:
        raise device_trace.TraceError(f"{command[0]} does not start: {problem.strerror}") from None
    if done.returncode != 0:
        raise device_trace.TraceError(f"{command[0]} ended with {done.returncode}: {done.stderr.strip()[-600:]}")
    for message in done.stderr.splitlines():
        if message.startswith("headwater_device_trace: "):
            print(message, file=sys.stderr)
    return done.stdout


def record(options, trace):
    """Runs the command twice, the second time with a trace; returns ms a step of both."""
    library = pathlib.Path(options.library).resolve()
    try:
        ctypes.CDLL(str(library))
    except OSError as problem:
        raise device_trace.TraceError(f"--library cannot be loaded: {problem}; libcupti may lie beside it") from None
    plain = {name: value for name, value in os.environ.items() if name != "CUDA_INJECTION64_PATH" and "DEVICE_TRACE" not in name}
    variables = {"CUDA_INJECTION64_PATH": str(library), "HEADWATER_DEVICE_TRACE": str(trace), "HEADWATER_DEVICE_TRACE_KIND": options.kind}
    untraced = step_ms_of(run(options.command, plain, options.timeout))
    traced = step_ms_of(run(options.command, plain | variables, options.timeout))
    if not trace.exists():
        raise device_trace.TraceError(f"{options.command[0]} left no trace: it did not use CUDA, or the driver did not load {library}")
    return {"untraced": untraced, "traced": traced}


def number(value):
    return "?" if value is None else f"{value:,.3f}"


def heading(row):
    return f"{row['cell']}, {row['mode']}" if row["cell"] else row["mode"]


def line(*cells):
    return f"| {' | '.join(map(str, cells))} |"


def head(*columns):
    return "", line(*columns), "|" + "---|" * len(columns)


def lines_of(row):
    """A report as lines of Markdown."""
    ms, limit, edges = row["step_ms"], row["limit_us"], row["edges"]
    cost = f" ({100 * (ms['traced'] / ms['untraced'] - 1):+.1f}%)" if ms["traced"] and ms["untraced"] else ""
    yield f"`{row['command']}`" if row["command"] else "A trace that was read again."
    yield ""
    period_ms = row["us_a_step"]["period"]["median"] / 1e3
    yield (f"{row['steps']} steps (stretches: {row['stretches']}), in the trace {number(period_ms)} ms each; "
           f"by the bench's clock {number(ms['untraced'])} ms without the trace and {number(ms['traced'])} ms with it{cost}.")
    yield (f"Left out: {edges['steps']} steps at ends of stretches (longest gap {edges['longest_idle_us']:.1f} us), "
           f"{row['other_steps']} launches of the same graph with other work beside them.")
    if row["dropped"] or row["untimed"]:
        yield (f"**Not whole**: CUPTI dropped {row['dropped']} records and gave {row['untimed']} no times, "
               "so less was idle than is said here.")
    yield from head("us a step", "median", "mean", "p95", "most")
    for name, spread in row["us_a_step"].items():
        yield line(name, *(f"{spread[key]:,.1f}" for key in ("median", "mean", "p95", "max")))
    yield from head("gaps", "longest, us", f"above {limit:g} us")
    for name, gaps in row["gaps"].items():
        yield line(name, f"{gaps['longest_us']:.1f}", gaps["over_limit"])
    if above := [gap for gap in row["longest"] if gap["us"] > limit]:
        yield from head(f"the longest idle gaps above {limit:g} us: us", "after", "before", "launches", "step")
        for gap in above:
            yield line(f"{gap['us']:.1f}", gap["after"], gap["before"], gap["where"], gap["step"])
    yield from head("idle after", "before", "launches", "times a step", "us a step", "longest, us")
    for pair in row["pairs"]:
        times = (f"{pair[key]:.1f}" for key in ("a_step", "us_a_step", "longest_us"))
        yield line(pair["after"], pair["before"], pair["where"], *times)
    yield from head("runs", "times a step", "us")
    for what in row["alone"]:
        yield line(what["name"], f"{what['a_step']:.1f}", f"{what['us']:,.1f}")
    yield from ("", "Idle gaps by length:", "", "```")
    most = max(count for _, count in row["histogram"]) or 1
    for least, count in row["histogram"]:
        yield f"above {least:>6g} us {count:>8} {'#' * -(-40 * count // most)}".rstrip()
    yield "```"


def page(whole):
    yield from ("# When a GPU is idle in a step", "",
                f"{whole['device']}, driver {whole['driver']}, commit {whole['commit']}, {whole['date']}: "
                "`tools/device_idle.py`, which wrote this page; `docs/benchmarks/README.md` says how.",
                "us are medians over steps of steady decoding; what computes nothing is idle, or runs copies only.")
    yield from head("cell", "trace of", "ms a step without", "with", "us idle", "us computes nothing", "longest idle gap, us",
                    "idle gaps above the limit")
    for row in whole["rows"]:
        medians = {name: spread["median"] for name, spread in row["us_a_step"].items()}
        idle = row["gaps"]["idle"]
        yield line(row["cell"], row["mode"], number(row["step_ms"]["untraced"]), number(row["step_ms"]["traced"]),
                   f"{medians['idle']:.1f}", f"{medians['computes nothing']:.1f}", f"{idle['longest_us']:.1f}",
                   f"{idle['over_limit']} of {row['limit_us']:g} us")
    for row in whole["rows"]:
        yield from ("", f"## {heading(row)}", "", *lines_of(row))


def merged(facts, row, older):
    """A record with this row, and with the others of the same commit and device."""
    same = older and all(older[key] == facts[key] for key in ("device", "driver", "commit"))
    key = lambda one: (one["cell"], one["mode"])
    kept = [one for one in older["rows"] if key(one) != key(row)] if same else []
    return facts | {"rows": sorted([*kept, row], key=key)}


def facts_of(commit):
    try:
        found = subprocess.run(["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"], capture_output=True, text=True)
        device, driver = found.stdout.splitlines()[0].split(", ")
    except (OSError, IndexError, ValueError):
        device = driver = "unknown"
    return {"device": device, "driver": driver, "commit": commit, "date": datetime.date.today().isoformat()}


def write_record(options, row):
    file = options.out / f"{NAME}.json"
    older = json.loads(file.read_text()) if file.exists() else None
    whole = merged(facts_of(options.commit), row, older)
    options.out.mkdir(parents=True, exist_ok=True)
    file.write_text(json.dumps(whole, indent=1) + "\n")
    (options.out / f"{NAME}.md").write_text("\n".join(page(whole)) + "\n")


def parse(arguments):
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--library", help="libheadwater_device_trace.so")
    parser.add_argument("--kind", choices=("graphs", "kernels"), default="graphs")
    parser.add_argument("--limit-us", type=float, default=20)
    parser.add_argument("--timeout", type=float, default=120, help="seconds of one run")
    parser.add_argument("--keep", type=pathlib.Path, help="leave the trace here")
    parser.add_argument("--read", type=pathlib.Path, help="a trace in place of a command")
    parser.add_argument("--json", type=pathlib.Path, help="the report's numbers")
    parser.add_argument("--cell", default="", help="what the record calls this run")
    parser.add_argument("--out", type=pathlib.Path, help="the folder of the record")
    parser.add_argument("--commit", default="unknown")
    parser.add_argument("command", nargs="*", metavar="-- COMMAND")
    options = parser.parse_args(arguments)
    if bool(options.read) == bool(options.command) or bool(options.command) != bool(options.library):
        parser.error("give --library and a command behind --, or --read")
    if options.out and not options.cell:
        parser.error("--out wants --cell, the name of this run in the record")
    return options


def main(arguments=None):
    options = parse(arguments)
    try:
        with tempfile.TemporaryDirectory() as folder:
            trace = options.read or (options.keep or pathlib.Path(folder) / "trace").resolve()
            step_ms = {"untraced": None, "traced": None}
            if options.command:
                trace.unlink(missing_ok=True)
                step_ms = record(options, trace)
            with open(trace, encoding="utf-8") as lines:
                row = device_trace.report(device_trace.read(lines), options.limit_us)
    except (device_trace.TraceError, OSError) as problem:
        sys.exit(f"device_idle.py: {problem}")
    # Paths of a machine say nothing elsewhere.
    words = [os.path.basename(word) if os.path.isabs(word) else word for word in options.command]
    row = {"cell": options.cell, "command": " ".join(words), "step_ms": step_ms} | row
    print(f"# {heading(row)}\n", *lines_of(row), sep="\n")
    if options.json:
        options.json.write_text(json.dumps(row, indent=1) + "\n")
    if options.out:
        write_record(options, row)


if __name__ == "__main__":
    main()
