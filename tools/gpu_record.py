#!/usr/bin/env python3
"""The record of tools/gpu_test.sh: runs its commands, then writes h200-tests.{json,md}.

gpu_record.py run --work DIR --part NAME --part-seconds N --tool NAME -- COMMAND...
gpu_record.py write --work DIR --out DIR --commit C --compiler TEXT
"""

import argparse
import json
import os
import pathlib
import re
import signal
import subprocess
import sys
import time

NAME = "h200-tests"
PARTS = ("tests", "sanitizer", "bench")
NO_SUMMARY = "no summary"


def tests_of(report, log):
    """What a GoogleTest JSON report says; why a test was skipped stands in the log alone."""
    reasons = dict(skip_reasons(log))
    run, passed, failed, skipped, left_out = 0, 0, [], [], []
    for suite in report["testsuites"]:
        for test in suite["testsuite"]:
            if test["status"] != "RUN":
                continue
            run += 1
            name = f"{test['classname']}.{test['name']}"
            if test["result"] == "SKIPPED":
                skipped.append({"test": name, "reason": reasons.get(name, "")})
            elif test.get("failures"):
                failed.append(name)
            else:
                passed += 1
                if "left_out" in test:
                    left_out.append({"test": name, "reason": test["left_out"]})
    return {"run": run, "passed": passed, "failed": failed, "skipped": skipped, "left_out": left_out}


def skip_reasons(log):
    message = []
    for line in log.splitlines():
        if line.startswith("[ RUN      ]"):
            message = []
        elif line.startswith("[  SKIPPED ]") and (found := re.match(r"\[  SKIPPED \] (\S+) \(\d+ ms\)", line)):
            yield found[1], " ".join(message)
        elif not re.search(r":\d+: Skipped$", line) and line.strip():
            message.append(line.strip())


def sanitizer_summary(log):
    found = re.findall(r"^=+ (\w+ SUMMARY: .*)$", log, re.MULTILINE)
    return found[-1] if found else NO_SUMMARY


def bench_summary(path):
    lines = path.read_text().splitlines() if path.exists() else []
    last = json.loads(lines[-1]) if lines else {}
    if not last.get("summary"):
        return {"lines": [json.loads(line) for line in lines]}
    return {"summary": last, "lines": [json.loads(line) for line in lines[:-1]]}


def is_good(run):
    if run["part"] == "sanitizer" and run["findings"] == NO_SUMMARY:
        return False
    return run["status"] == 0 and run.get("tests", {}).get("run", 1) > 0


def run_command(arguments):
    """One command within what its part has left; adds a line to runs.jsonl. Returns whether it did well."""
    runs = read_runs(arguments.work)
    used = sum(run["seconds"] for run in runs if run["part"] == arguments.part)
    left = arguments.part_seconds - used
    report = arguments.work / f"{len(runs)}.json"
    log_path = arguments.work / f"{len(runs)}.log"
    run = {"part": arguments.part, "tool": arguments.tool, "command": " ".join(arguments.command), "seconds": 0}
    if left < 1:
        run["status"], run["note"] = -1, f"not run: the {arguments.part_seconds:g} s of {arguments.part} were over"
    else:
        begin = time.monotonic()
        run["status"], note = execute(arguments.command, left, report, log_path)
        run["seconds"] = round(time.monotonic() - begin, 1)
        if note:
            run["note"] = note
    log = log_path.read_text(errors="replace") if log_path.exists() else ""
    if report.exists():
        run["tests"] = tests_of(json.loads(report.read_text()), log)
    if arguments.part == "sanitizer":
        run["findings"] = sanitizer_summary(log)
    if arguments.part == "bench":
        run["bench"] = bench_summary(arguments.work / "bench.json")
    if not is_good(run):
        run["log_tail"] = log[-4000:]
        sys.stderr.write(run["log_tail"])
    with open(arguments.work / "runs.jsonl", "a") as file:
        file.write(json.dumps(run) + "\n")
    verdict = "ok" if is_good(run) else "FAILED"
    print(f"{run['tool']:<10} {run['seconds']:>6} s  {verdict:<6}  {run['command']}", flush=True)
    return is_good(run)


def execute(command, seconds, report, log_path):
    environment = dict(os.environ, GTEST_OUTPUT=f"json:{report}")
    with open(log_path, "w") as log:
        try:
            process = subprocess.Popen(command, stdout=log, stderr=subprocess.STDOUT, env=environment,
                                       start_new_session=True)
        except OSError as problem:
            return 127, str(problem)
        try:
            return process.wait(timeout=seconds), ""
        except subprocess.TimeoutExpired:
            os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            return 124, f"stopped after {seconds:.0f} s, the end of its part's time"


def read_runs(work):
    path = work / "runs.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


def facts(commit, compiler):
    query = ["nvidia-smi", "--query-gpu=name,driver_version", "--format=csv,noheader"]
    answer = subprocess.run(query, capture_output=True, text=True, check=True).stdout
    device, _, driver = answer.split("\n")[0].partition(", ")
    return {"device": device, "driver": driver, "nvcc": compiler, "commit": commit,
            "date": time.strftime("%Y-%m-%d", time.gmtime())}


def merged(record, older):
    """What an older record of the same commit and device says of the parts that this one has not run."""
    parts = {run["part"] for run in record["runs"]}
    if any(older.get(name) != record[name] for name in ("commit", "device", "driver")):
        return record
    runs = record["runs"] + [run for run in older["runs"] if run["part"] not in parts]
    return dict(record, runs=sorted(runs, key=lambda run: PARTS.index(run["part"])))


def counts(run):
    tests = run.get("tests")
    if tests is None:
        return "" if run["part"] == "bench" else "no report"
    return f"{tests['passed']} passed, {len(tests['failed'])} failed, {len(tests['skipped'])} skipped"


def page(record):
    good = sum(map(is_good, record["runs"]))
    rows = ["# Tests of the CUDA back end", "",
            f"`tools/gpu_test.sh` at commit {record['commit']}, {record['date']}: {record['device']}, driver "
            f"{record['driver']}, {record['nvcc']}. {good} of {len(record['runs'])} commands did well.", "",
            "Long filters are shortened here; the JSON beside this page has them.", "",
            "| part | tool | command | tests | seconds | result |", "|---|---|---|---|---:|---|"]
    for run in record["runs"]:
        result = "ok" if is_good(run) else f"**failed** ({run['status']})"
        words = [word for word in (result, run.get("findings"), run.get("note")) if word]
        command = re.sub(r"(--gtest_filter=\S{24})\S+", r"\1...", run["command"]).replace("|", "\\|")
        rows.append(f"| {run['part']} | {run['tool']} | `{command}` | {counts(run)} | {run['seconds']:g} "
                    f"| {'; '.join(words)} |")
    rows += failures(record) + reasons(record) + bench_table(record)
    return "\n".join(rows) + "\n"


def failures(record):
    names = [f"- {name} ({run['tool']})" for run in record["runs"] for name in run.get("tests", {}).get("failed", [])]
    return ["", "## Failed", "", *names] if names else []


def reasons(record):
    tests = {}
    for run in record["runs"]:
        for kind, words in (("skipped", "skipped"), ("left_out", "a case left out")):
            for test in run.get("tests", {}).get(kind, []):
                tests[(test["test"], words)] = test["reason"]
    rows = [f"- {name}, {words}: {reason}" for (name, words), reason in tests.items()]
    return ["", "## Skipped", "", *rows] if rows else []


def bench_table(record):
    lines = [line for run in record["runs"] for line in run.get("bench", {}).get("lines", [])]
    if not lines:
        return []
    rows = ["", "## Bench", "", "Microseconds of one attend and merge; cold caches, and warm ones beside them.", "",
            "| cell | arm | us | warm us | bound us | path |", "|---|---|---:|---:|---:|---|"]
    for line in lines:
        if "skipped" in line:
            rows.append(f"| {line['cell']} | | | | | skipped: {line['skipped']} |")
            continue
        number = [f"{line[name]:.1f}" if name in line else "" for name in ("us", "warm_us", "bound_us")]
        rows.append(f"| {line['cell']} | {line['arm']} | {' | '.join(number)} | {line['path']} |")
    return rows


def write(arguments):
    record = dict(facts(arguments.commit, arguments.compiler), runs=read_runs(arguments.work))
    path = arguments.out / f"{NAME}.json"
    if path.exists():
        record = merged(record, json.loads(path.read_text()))
    arguments.out.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    (arguments.out / f"{NAME}.md").write_text(page(record))
    return True


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    commands = parser.add_subparsers(required=True)
    run = commands.add_parser("run")
    run.add_argument("--part", choices=PARTS, required=True)
    run.add_argument("--part-seconds", type=float, required=True)
    run.add_argument("--tool", required=True)
    run.add_argument("command", nargs="+")
    run.set_defaults(action=run_command)
    writing = commands.add_parser("write")
    writing.add_argument("--out", type=pathlib.Path, required=True)
    writing.add_argument("--commit", required=True)
    writing.add_argument("--compiler", required=True)
    writing.set_defaults(action=write)
    for command in (run, writing):
        command.add_argument("--work", type=pathlib.Path, required=True)
    arguments = parser.parse_args()
    return 0 if arguments.action(arguments) else 1


if __name__ == "__main__":
    sys.exit(main())
