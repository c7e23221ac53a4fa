"""A run of the Hopper attend kernel (kernel_clocks.py) as text and as a picture. Needs no GPU."""

import collections
import statistics

from attention_streams import KINDS, LOADER_PHASES, PHASES, spread, streams_of, times

COLUMNS = 100
LOADERS, QUERY_WARPS, ATTENDING, LEADERS = (0, 1), (2, 3), tuple(range(4, 12)), (4, 8)  # warps of a block
MOMENTS = (  # title, event, warps, the first or the last of a warp
    ("block begins", "Begins", (0,), 0),
    ("kernels ahead have ended", "AheadEnded", LEADERS, 0),
    ("loader: header and first item known", "ItemKnown", LOADERS, 0),
    ("loader: first tile's copies issued", "FirstCopied", LOADERS, 0),
    ("loader: last job's copies issued", "JobCopied", LOADERS, -1),
    ("loader: queue empty", "QueueEmpty", LOADERS, 0),
    ("query warp: first queries filled", "QueriesFilled", QUERY_WARPS, 0),
    ("attending: first job known", "JobKnown", LEADERS, 0),
    ("attending: first queries there", "QueriesThere", LEADERS, 0),
    ("attending: first tile landed", "TileLanded", LEADERS, 0),
    ("attending: last products done", "ProductsDone", LEADERS, -1),
    ("attending: last job finished", "JobFinished", LEADERS, -1),
    ("attending: all jobs done", "JobsDone", LEADERS, 0),
    ("merging: both streams met", "StreamsMet", ATTENDING, 0),
    ("merging: first row's partials there", "FirstRowComplete", ATTENDING, 0),
    ("merging: last row's partials there", "LastRowComplete", ATTENDING, -1),
    ("merging: rows written", "RowsWritten", ATTENDING, -1),
    ("warp ends", "Ends", range(12), 0),
)


def moments(run):
    """Lines: when things happened."""
    yield f"{'us since the first block began':<38} {'least / median / most':>24}   warps"
    for title, event, warps, which in MOMENTS:
        found = times(run, event, warps, which)
        yield f"{title:<38} {spread(found):>24}   {len(found)}"


def kinds_of_jobs(streams):
    """Lines: jobs by kind, and what they took."""
    yield f"{'jobs':<14}{'in all':>7}{'a stream':>16}{'keys':>22}{'rows':>16}{'ns a key':>24}"
    every = {kind: [job for stream in streams for job in stream.jobs if job.kind == kind] for kind in KINDS}
    for kind, jobs in every.items():
        if not jobs:
            continue
        whole = "{:.0f}"
        counts = [sum(job.kind == kind for job in stream.jobs) for stream in streams]
        yield (f"{KINDS[kind]:<14}{len(jobs):>7}{spread(counts, whole):>16}"
               f"{spread((job.keys for job in jobs), whole):>22}{spread((job.rows for job in jobs), whole):>16}"
               f"{spread(1e3 * job.us / job.keys for job in jobs):>24}")
    yield "us a job, least / median / most:"
    for kind, jobs in every.items():
        if jobs:
            yield f"{KINDS[kind]:<14}{spread(job.us for job in jobs)} in all, waiting for tiles {spread(job.waited for job in jobs)}"
            for phase in ("j", "q", "Q", "t", kind, "f"):
                found = [job.phases[phase] for job in jobs if phase in job.phases]
                yield f"  {phase} {PHASES[phase][0]:<36} {spread(found):>24}"


def shares(streams, us):
    """Lines: a stream's time by phase; the means add up to the run's length."""
    yield f"{'us of a stream':<40} {'mean':>7}   {'least / median / most':>22}"
    rows = {"has not begun": [stream.attending[0].us for stream in streams]}
    rows |= {f"{phase} {title}": [stream.us_in(phase) for stream in streams] for phase, (title, _) in PHASES.items()}
    rows["has ended"] = [us - stream.attending[-1].us for stream in streams]
    rows["(waits for tiles, inside of its jobs)"] = [stream.waited for stream in streams]
    for title, found in rows.items():
        if any(found):
            yield f"  {title:<38} {statistics.mean(found):>7.2f}   {spread(found):>22}"


def picture(segments, us, columns=COLUMNS):
    """A line of letters: in each column the phase that takes most of it."""
    taken = [collections.Counter() for _ in range(columns)]
    for segment in segments:
        column = int(segment.begin / us * columns)
        while column < columns and column * us / columns < segment.end:
            begin, end = column * us / columns, (column + 1) * us / columns
            taken[column][segment.phase] += max(0, min(end, segment.end) - max(begin, segment.begin))
            column += 1
    return "".join(max(column, key=column.get) if column else " " for column in taken).rstrip()


def telling_blocks(streams):
    """Title: block. Those whose jobs are done first, in the middle and last."""
    by_done = sorted(streams, key=lambda stream: stream.done)
    return {"first done": by_done[0].block, "median": by_done[len(by_done) // 2].block,
            "last done": by_done[-1].block}


def pictures(streams, us):
    """Lines: some blocks, a line a stream."""
    yield f"0 to {us:.1f} us, a column is {us / COLUMNS:.2f} us; a line for each loader, under it its stream"
    yield "loaders: " + ", ".join(f"{letter} {title}" for letter, title in LOADER_PHASES.items())
    yield "streams: " + ", ".join(f"{letter} {title}" for letter, (title, _) in PHASES.items())
    for title, block in telling_blocks(streams).items():
        for stream in streams:
            if stream.block == block:
                yield f"{'':>16}|{picture(stream.loader_segments, us)}"
                yield f"{title:>10} {block:>3}.{stream.index} |{picture(stream.segments, us)}"


def report(run):
    """The whole text of a run."""
    streams = streams_of(run)
    parts = (shares(streams, run.us), moments(run), kinds_of_jobs(streams), pictures(streams, run.us))
    return "\n\n".join("\n".join(part) for part in parts) + "\n"


def summary(run):
    """Four lines that say where the time of a run went."""
    streams = streams_of(run)
    means = {phase: statistics.mean(stream.us_in(phase) for stream in streams) for phase in PHASES}
    jobs = collections.Counter(job.kind for stream in streams for job in stream.jobs)
    at = lambda event, warps, which=0: spread(times(run, event, warps, which), "{:.1f}").replace(" ", "")
    yield "  a stream: " + ", ".join(f"{PHASES[phase][0]} {us:.1f}" for phase, us in means.items() if us >= 0.05) \
        + f" (tiles {statistics.mean(stream.waited for stream in streams):.1f})"
    yield "  jobs: " + ", ".join(
        f"{count} of {KINDS[kind]} ({spread((job.us for stream in streams for job in stream.jobs if job.kind == kind), '{:.1f}')} us)"
        for kind, count in jobs.items())
    yield (f"  item {at('ItemKnown', LOADERS)} first copy {at('FirstCopied', LOADERS)} ahead {at('AheadEnded', LEADERS)} "
           f"first tile {at('TileLanded', LEADERS)} jobs done {at('JobsDone', LEADERS)} "
           f"partials there {at('LastRowComplete', ATTENDING, -1)} written {at('RowsWritten', ATTENDING, -1)}")
    median = telling_blocks(streams)["median"]
    yield f"  |{picture(next(stream for stream in streams if stream.block == median).segments, run.us)}"


def svg(run, line=4, width=1600):
    """All blocks, a line a stream."""
    streams = streams_of(run)
    scale, left, top = width / run.us, 40, 40
    parts = [f'<svg xmlns="http://www.w3.org/2000/svg" width="{width + left + 20}" height="{len(streams) * line + top + 30}" '
             'font-family="sans-serif" font-size="11">']
    for number, (letter, (title, colour)) in enumerate(PHASES.items()):
        x, y = left + number % 6 * 260, 4 + number // 6 * 16
        parts.append(f'<rect x="{x}" y="{y}" width="12" height="10" fill="{colour}"/>'
                     f'<text x="{x + 16}" y="{y + 9}">{letter} {title}</text>')
    for number, stream in enumerate(streams):
        y = top + number * line
        if stream.index == 0 and stream.block % 8 == 0:
            parts.append(f'<text x="4" y="{y + 8}">{stream.block}</text>')
        parts += [f'<rect x="{left + segment.begin * scale:.1f}" y="{y}" height="{line - 1}" '
                  f'width="{(segment.end - segment.begin) * scale:.1f}" fill="{PHASES[segment.phase][1]}"/>'
                  for segment in stream.segments]
    bottom = top + len(streams) * line + 14
    step = max(1, round(run.us / 10))
    parts += [f'<text x="{left + us * scale:.1f}" y="{bottom}">{us} us</text>' for us in range(0, int(run.us) + 1, step)]
    return "\n".join([*parts, "</svg>\n"])
