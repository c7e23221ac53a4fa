"""Numbers of the attack test: printed as they come, and with --full written to docs/benchmarks/server-attack.{md,json}."""
import atexit
import datetime
import json
import os
import platform

PATH = os.path.join(os.path.dirname(__file__), "../../docs/benchmarks/server-attack")
rows = {}


def rounded(value):
    if isinstance(value, float):
        return float(f"{value:.4g}")
    if isinstance(value, list):
        return [rounded(v) for v in value]
    if isinstance(value, dict):
        return {k: rounded(v) for k, v in sorted(value.items())}
    return value


def add(row, numbers):
    rows[row] = {k: rounded(v) for k, v in numbers.items()}
    print(f"{row}: {json.dumps(rows[row])}", flush=True)


def processor():
    with open("/proc/cpuinfo") as file:
        names = [line.split(":")[1].strip() for line in file if line.startswith("model name")]
    return f"{names[0] if names else platform.machine()}, {os.cpu_count()} cores"


def write():
    """Rows of this run replace their namesakes; others stay."""
    if not rows:
        return
    record = {"rows": {}}
    if os.path.exists(PATH + ".json"):
        with open(PATH + ".json") as file:
            record = json.load(file)
    today = datetime.date.today().isoformat()
    for row, numbers in rows.items():
        record["rows"][row] = {"date": today, "machine": processor(), **numbers}
    with open(PATH + ".json", "w") as file:
        json.dump(record, file, indent=1)
        file.write("\n")
    with open(PATH + ".md", "w") as file:
        file.write("# The server under attack\n\n`python3 tests/server/attack_test.py --full`, or with the name of a test for one row. "
                   "The attackers run on the same\ncores as the server.\n")
        for row, numbers in record["rows"].items():
            file.write(f"\n## {row[0].upper() + row[1:]}\n\n")
            file.writelines(f"- {name.replace('_', ' ')}: {value if isinstance(value, str) else json.dumps(value)}\n"
                            for name, value in numbers.items())


def write_at_exit():
    atexit.register(write)
