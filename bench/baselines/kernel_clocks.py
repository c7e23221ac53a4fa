"""The stamps of the Hopper attend kernel (src/backend/cuda/attention/clocks.h) as times on one clock. Needs no GPU.

A stamp holds the clock of its multiprocessor. Some also hold nanoseconds of a clock that all multiprocessors share, but which
may tick slowly: a warp's first and last one, and one that was taken when that clock had just gone on. These say how fast
multiprocessors run, and line the blocks up.
"""

import dataclasses
import math
import struct

WARPS, PLACES = 12, 1024  # of a block, of a warp
WARP_BYTES = PLACES * 8
EVENTS = ("", "Begins", "AheadEnded", "Ends", "ItemKnown", "FirstCopied", "JobCopied", "QueueEmpty", "QueriesFilled",
          "JobKnown", "QueriesThere", "TileLanded", "ProductsDone", "JobFinished", "JobsDone", "StreamsMet",
          "FirstRowComplete", "LastRowComplete", "RowsWritten", "Tick", "QueriesCopied")  # the header's enumerators by number
TIMED = ("Begins", "Ends", "Tick")  # their argument is the shared clock's
EVENT_BITS, TIME_BITS = 5, 27


class ClocksError(Exception):
    """Memory that no run of a kernel with clocks has left."""


@dataclasses.dataclass(frozen=True)
class Stamp:
    event: str  # of EVENTS
    us: float  # since the first block's first instruction
    argument: int


@dataclasses.dataclass(frozen=True)
class Run:
    """One launch."""

    warps: list  # [block][warp]: its Stamps in order
    clocks_us: float  # of a multiprocessor
    tick_ns: int  # of the clock that all share

    @property
    def us(self):
        return max(warp[-1].us for block in self.warps for warp in block)


def difference(later, earlier, bits):
    """Of two counters of which the low bits are known."""
    half = 1 << (bits - 1)
    return (later - earlier + half) % (1 << bits) - half


def _raw_warp(memory, block, warp):
    """A warp's stamps as (event, clock, argument)."""
    at = (block * WARPS + warp) * WARP_BYTES
    end = struct.unpack_from("<2I", memory, at)[1]
    where = f"block {block}, warp {warp}"
    if end == PLACES - 1:
        raise ClocksError(f"{where}: more than {PLACES - 3} stamps; take a cell with fewer jobs a stream")
    if not 2 < end < PLACES:
        raise ClocksError(f"{where}: {end} where the next place of {PLACES} stands; has the run ended?")
    words = struct.unpack_from(f"<{2 * end - 2}I", memory, at + 8)
    raw = [(what % (1 << EVENT_BITS), clock, what >> EVENT_BITS) for clock, what in zip(words[::2], words[1::2])]
    if any(not 0 < event < len(EVENTS) for event, _, _ in raw):
        raise ClocksError(f"{where}: an event that clocks.h does not know")
    if (EVENTS[raw[0][0]], EVENTS[raw[-1][0]]) != ("Begins", "Ends"):
        raise ClocksError(f"{where}: its stamps do not run from its first to its last instruction")
    return raw


class _Block:
    """Clocks since the block's first stamp."""

    def __init__(self, raw, time):
        self._first = raw[0][0][1]
        self._warps = [[(EVENTS[event], difference(clock, self._first, 32), argument) for event, clock, argument in warp]
                       for warp in raw]
        self._time = time

    def pairs(self, event):
        """(clocks, shared nanoseconds) of every stamp of a TIMED event."""
        return [(clocks, difference(argument, self._time, TIME_BITS))
                for warp in self._warps for name, clocks, argument in warp if name == event]

    def placed(self, clocks_ns):
        """[warp]: (event, nanoseconds, argument). The shared clock shows the time of its last tick, so every pair says how
        early the block began at most; those of ticks are exact."""
        began = max(time - clocks / clocks_ns for event in TIMED for clocks, time in self.pairs(event))
        return [[(event, began + clocks / clocks_ns, argument) for event, clocks, argument in warp]
                for warp in self._warps]


def _blocks(memory, blocks):
    if len(memory) != blocks * WARPS * WARP_BYTES or blocks == 0:
        raise ClocksError(f"{len(memory)} bytes of stamps for {blocks} blocks, each has {WARPS * WARP_BYTES}")
    raw = [[_raw_warp(memory, block, warp) for warp in range(WARPS)] for block in range(blocks)]
    return [_Block(block, raw[0][0][0][2]) for block in raw]


def read(memories, blocks):
    """The run of median length of those that stamped so many blocks' memory (bytes), and the length of each in us. All of them
    say how fast multiprocessors run."""
    runs = [_blocks(memory, blocks) for memory in memories]
    spans = [[sum(pair[i] for block in run for pair in block.pairs("Ends")) -
              sum(pair[i] for block in run for pair in block.pairs("Begins")) for i in (0, 1)] for run in runs]
    clocks, nanoseconds = (sum(span[i] for span in spans) for i in (0, 1))
    if clocks <= 0 or nanoseconds <= 0:
        raise ClocksError(f"{clocks} clocks in {nanoseconds} ns: the runs are shorter than the shared clock's tick")
    clocks_ns = clocks / nanoseconds
    found = sorted((_run(run, clocks_ns) for run in runs), key=lambda run: run.us)
    return found[len(found) // 2], [run.us for run in found]


def _run(blocks, clocks_ns):
    placed = [block.placed(clocks_ns) for block in blocks]
    first = min(warp[0][1] for block in placed for warp in block)
    tick = math.gcd(*(time for block in blocks for event in TIMED for _, time in block.pairs(event)))
    return Run([[[Stamp(event, (ns - first) / 1e3, argument) for event, ns, argument in warp] for warp in block]
                for block in placed], clocks_ns * 1e3, tick)
