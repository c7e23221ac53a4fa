"""What the streams of the Hopper attend kernel did in a run (kernel_clocks.py): jobs, phases, idle time. Needs no GPU.

A block has two streams. Warps 0 and 1 load for them, warps 2 and 3 fetch their queries, warps 4 to 7 and 8 to 11 attend. The
first attending warp of a stream stands for all four.
"""

import dataclasses
import functools
import statistics

STREAMS = 2

PHASES = {  # letter: what a stream does in it, and a colour
    "k": ("waits for kernels ahead", "#9aa0a6"),
    "j": ("waits for a job", "#e8710a"),
    "q": ("waits for queries", "#f9ab00"),
    "Q": ("copies queries of many rows", "#fcad70"),
    "t": ("until the first tile is there", "#fdd663"),
    "B": ("multiplies for a job of both streams", "#174ea6"),
    "M": ("multiplies many rows", "#1a73e8"),
    "F": ("multiplies few rows", "#34a853"),
    "f": ("finishes a job", "#a142f4"),
    "b": ("waits for the other stream", "#d93025"),
    "c": ("waits for partials", "#ee675c"),
    "w": ("merges and writes rows", "#12b5cb"),
    "e": ("ends", "#dadce0"),
}
_ENDED_BY = {"AheadEnded": "k", "JobKnown": "j", "JobsDone": "j", "QueriesThere": "q", "QueriesCopied": "Q", "TileLanded": "t",
             "JobFinished": "f", "StreamsMet": "b", "FirstRowComplete": "c", "LastRowComplete": "c",
             "RowsWritten": "w", "Ends": "e"}
LOADER_PHASES = {  # of a loader warp
    "i": "reads the header and the first item",
    "k": PHASES["k"][0],
    "l": "loads, or waits for room",
    "e": "ends",
}
_LOADER_ENDED_BY = {"ItemKnown": "i", "AheadEnded": "k", "Ends": "e"}
_OF_A_JOB = ("JobKnown", "QueriesThere", "QueriesCopied", "TileLanded", "ProductsDone", "JobFinished")
KINDS = {"B": "both streams", "M": "many rows", "F": "few rows"}  # of jobs, by the letter of their products


@dataclasses.dataclass(frozen=True)
class Segment:
    phase: str  # of PHASES
    begin: float  # us
    end: float


@dataclasses.dataclass
class Job:
    kind: str  # of KINDS
    keys: int
    rows: int
    waited: float  # us for tiles
    phases: dict  # us by letter: j, q, Q, t, the kind, f

    @property
    def us(self):
        """From when it is known until it is finished."""
        return sum(self.phases.values()) - self.phases["j"]


def _kind(argument):  # of JobKnown
    return "B" if argument & 256 else "F" if argument & 128 else "M"


class Stream:
    def __init__(self, run, block, index):
        self.block, self.index, self._clocks_us = block, index, run.clocks_us
        warps = run.warps[block]
        self.loader, self.attending = warps[index], warps[4 + 4 * index]

    @functools.cached_property
    def segments(self):
        """One for each stamp of the attending warp: what ended with it."""
        found, kind = [], "F"
        for before, stamp in zip(self.attending, self.attending[1:]):
            if stamp.event == "JobKnown":
                kind = _kind(stamp.argument)
            found.append(Segment(_ENDED_BY.get(stamp.event, kind), before.us, stamp.us))
        return found

    @property
    def loader_segments(self):
        return [Segment(_LOADER_ENDED_BY.get(stamp.event, "l"), before.us, stamp.us)
                for before, stamp in zip(self.loader, self.loader[1:])]

    @functools.cached_property
    def jobs(self):
        found = []
        for stamp, segment in zip(self.attending[1:], self.segments):
            if stamp.event == "JobKnown":
                found.append(Job(_kind(stamp.argument), stamp.argument >> 9, stamp.argument % 128, 0, {}))
            if stamp.event not in _OF_A_JOB:
                continue
            if stamp.event == "ProductsDone":
                found[-1].waited = stamp.argument / self._clocks_us
            found[-1].phases[segment.phase] = segment.end - segment.begin
        return found

    def us_in(self, phase):
        return sum(segment.end - segment.begin for segment in self.segments if segment.phase == phase)

    @property
    def waited(self):
        """For tiles, inside of its jobs."""
        return sum(job.waited for job in self.jobs)

    @property
    def done(self):
        return next(stamp.us for stamp in self.attending if stamp.event == "JobsDone")


def streams_of(run):
    return [Stream(run, block, index) for block in range(len(run.warps)) for index in range(STREAMS)]


def times(run, event, warps, which):
    """us of each of the blocks' warps that has the event: the first (0) or the last (-1) of them."""
    found = ([stamp.us for stamp in block[warp] if stamp.event == event] for block in run.warps for warp in warps)
    return [us[which] for us in found if us]


def spread(values, form="{:.2f}"):
    """Least, median and most, as text."""
    values = list(values)
    if not values:
        return "-"
    return " / ".join(form.format(value) for value in (min(values), statistics.median(values), max(values)))
