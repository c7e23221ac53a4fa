"""A trace of bench/device_trace/device_trace.cc as steps of steady decoding, and when the device is idle in them.

The engine decodes by launching one graph a step, so a step lasts from one launch of a graph to the next. Steady are the steps of
that graph, and with that work beside it, of which there are most; bench step times other graphs, too, but none so often.

Two things are told apart: when nothing runs at all (idle), and when nothing computes: then it is idle, or only copies run.
A graph that is one record counts as computing from its first kernel to its last. Times are ns in the trace, us in reports.
"""
import collections
import dataclasses
import itertools
import re
import statistics

STEPS_MIN = 30  # bench step launches each graph that it times by itself 21 times
EDGE_STEPS = 2  # at either end of a stretch: there the host does not run ahead
LISTED = 10
HISTOGRAM_US = (0, 0.5, 1, 2, 5, 10, 20, 50, 100, 1000)  # where a class of gaps begins

Record = collections.namedtuple("Record", "kind start end stream graph launch name")
Gap = collections.namedtuple("Gap", "start end after before")  # names of what ran last and of what runs next


class TraceError(Exception):
    """A trace that says nothing of steps, with the reason."""


@dataclasses.dataclass
class Trace:
    records: list  # by start
    dropped: int
    untimed: int

    @property
    def mode(self):
        return "graphs" if any(record.kind == "graph" for record in self.records) else "kernels"


@dataclasses.dataclass
class Step:
    graph: int
    start: int
    launch_end: int  # of the last kernel of its graph
    end: int  # the next launch begins
    records: list  # all that run in it
    next: Record  # the first of the next launch
    next_graph: int
    is_steady: bool = False

    @property
    def alone(self):
        """Names of what was launched beside the graph; the order of streams may vary."""
        return tuple(sorted(record.name for record in self.records if not record.graph and record.start >= self.start))

    def gaps(self, kinds=("graph", "kernel", "set", "copy")):
        """Where none of these kinds runs."""
        reach, last = self.start, None
        for record in [*(record for record in self.records if record.kind in kinds), self.next]:
            if record.start > reach:
                yield Gap(reach, record.start, last.name if last else "", record.name)
            if record.end > reach:
                reach, last = record.end, record

    def gaps_of_compute(self):
        return self.gaps(("graph", "kernel", "set"))


def read(lines):
    records, end = [], None
    for number, line in enumerate(lines, 1):
        kind, *fields = line.rstrip("\n").split("\t")
        try:
            if kind == "end":
                written, dropped, untimed = end = tuple(map(int, fields))
            else:
                *numbers, name = fields
                records.append(Record(kind, *map(int, numbers), short(name) if kind == "kernel" else name))
        except (TypeError, ValueError):
            raise TraceError(f"line {number} of the trace is no record: {line.strip()[:80]!r}") from None
    if end is None:
        raise TraceError("the trace has no last line: the program was stopped before its end, or CUPTI failed (it says so on stderr)")
    if not records:
        raise TraceError("the trace is empty: nothing ran on the device")
    if len(records) != written:
        raise TraceError(f"the trace has {len(records)} records, and its last line says {written}: was the disk full?")
    return Trace(sorted(records, key=lambda record: (record.start, record.end)), dropped, untimed)


def short(name):
    """A kernel without its type, namespaces, template arguments and parameters."""
    plain = re.split(r"[<(]", name.replace("(anonymous namespace)::", ""), maxsplit=1)[0]
    return plain.split("::")[-1].split(" ")[-1] or name


def steps_of(records):
    """From each launch of a graph to the next launch of any."""
    launches = {}
    for record in records:
        if record.graph:
            launches.setdefault((record.graph, record.launch), []).append(record)
    launches = list(launches.values())  # in order: records are
    rest = collections.deque(records)
    steps, running = [], []
    for own, following in itertools.pairwise(launches):
        start, end = own[0].start, following[0].start
        running = [record for record in running if record.end > start]
        while rest and rest[0].start < end:
            record = rest.popleft()
            if record.end > start:
                running.append(record)
        steps.append(Step(own[0].graph, start, max(record.end for record in own), end, running, following[0], following[0].graph))
    return steps


def mark_steady(steps):
    """Marks the steady ones and returns how many there are; TraceError where they are too few."""
    kind = lambda step: (step.graph, step.alone)
    found = collections.Counter(kind(step) for step in steps if step.graph == step.next_graph)
    usual, count = found.most_common(1)[0] if found else (None, 0)
    if count < STEPS_MIN:
        raise TraceError(f"no steady decoding: the graph that is launched most often in a row follows itself {count} times, and "
                         f"{STEPS_MIN} are wanted; decode more (--max-tokens, --reps), with --backend cuda")
    for step in steps:
        step.is_steady = step.graph == step.next_graph and kind(step) == usual
    return count


def stretches_of(steps):
    """Steady steps that follow each other."""
    return [list(group) for is_steady, group in itertools.groupby(steps, key=lambda step: step.is_steady) if is_steady]


def us(ns):
    return ns / 1e3


def spread(values):
    ordered = sorted(values)
    return {"median": statistics.median(ordered), "mean": statistics.fmean(ordered),
            "p95": ordered[-(-95 * len(ordered) // 100) - 1], "max": ordered[-1]}


def length(gaps):
    return sum(gap.end - gap.start for gap in gaps)


def longest_us(gaps):
    return us(max((gap.end - gap.start for gap in gaps), default=0))


def times(step):
    """us of a step, by what the device does."""
    idle, no_compute = length(step.gaps()), length(step.gaps_of_compute())
    inside = length(gap for gap in step.gaps() if where(step, gap) == "inside")
    period = step.end - step.start
    return {name: us(ns) for name, ns in {
        "period": period, "computes": period - no_compute, "only copies": no_compute - idle, "idle": idle,
        "idle between launches": idle - inside, "idle inside launches": inside, "computes nothing": no_compute}.items()}


def where(step, gap):
    return "inside" if gap.start < step.launch_end else "between"


def pairs(steps):
    """Idle time between launches and inside them, by what ran last and what ran next; the most first."""
    found = collections.defaultdict(list)
    for step in steps:
        for gap in step.gaps():
            found[where(step, gap), gap.after, gap.before].append(us(gap.end - gap.start))
    rows = [{"where": place, "after": after, "before": before, "a_step": len(gaps) / len(steps), "us_a_step": sum(gaps) / len(steps),
             "longest_us": max(gaps)} for (place, after, before), gaps in found.items()]
    rows.sort(key=lambda row: (row["where"], -row["us_a_step"]))
    return [row for _, group in itertools.groupby(rows, key=lambda row: row["where"]) for row in itertools.islice(group, LISTED)]


def alone(steps):
    """What is launched beside the graph, and the graph."""
    found = collections.defaultdict(list)
    for step in steps:
        found["the graph"].append(us(step.launch_end - step.start))
        for record in step.records:
            if not record.graph:
                found[record.name].append(us(record.end - record.start))
    return [{"name": name, "a_step": len(each) / len(steps), "us": statistics.median(each)} for name, each in found.items()]


def longest(steps):
    rows = [{"us": us(gap.end - gap.start), "step": number, "where": where(step, gap), "after": gap.after, "before": gap.before}
            for number, step in enumerate(steps) for gap in step.gaps()]
    return sorted(rows, key=lambda row: -row["us"])[:LISTED]


def histogram(gaps):
    """[least us, how many gaps] of each class."""
    lengths = [us(gap.end - gap.start) for gap in gaps]
    ends = (*HISTOGRAM_US[1:], float("inf"))
    return [[least, sum(least < each <= end for each in lengths)] for least, end in zip(HISTOGRAM_US, ends)]


def report(trace, limit_us=20.0):
    """All numbers of a trace's steady steps."""
    steps = steps_of(trace.records)
    mark_steady(steps)
    stretches = [(stretch[:EDGE_STEPS], stretch[EDGE_STEPS:-EDGE_STEPS], stretch[EDGE_STEPS:][-EDGE_STEPS:])
                 for stretch in stretches_of(steps)]
    kept = [step for _, middle, _ in stretches for step in middle]
    edges = [step for first, _, last in stretches for step in first + last]
    if not kept:
        raise TraceError(f"no stretch of steady decoding is longer than {2 * EDGE_STEPS} steps; give --max-tokens 32 or more")
    rows = [times(step) for step in kept]
    idle = [gap for step in kept for gap in step.gaps()]
    no_compute = [gap for step in kept for gap in step.gaps_of_compute()]
    over = lambda gaps: sum(us(gap.end - gap.start) > limit_us for gap in gaps)
    graph = kept[0].graph
    return {
        "mode": trace.mode, "steps": len(kept), "stretches": len(stretches), "limit_us": limit_us,
        "edges": {"steps": len(edges), "longest_idle_us": longest_us(gap for step in edges for gap in step.gaps())},
        "other_steps": sum(step.graph == graph and not step.is_steady for step in steps),
        "dropped": trace.dropped, "untimed": trace.untimed,
        "us_a_step": {name: spread(row[name] for row in rows) for name in rows[0]},
        "gaps": {"idle": {"longest_us": longest_us(idle), "over_limit": over(idle)},
                 "computes nothing": {"longest_us": longest_us(no_compute), "over_limit": over(no_compute)}},
        "alone": alone(kept), "pairs": pairs(kept), "longest": longest(kept), "histogram": histogram(idle)}
