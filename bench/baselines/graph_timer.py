"""GPU time of pieces of work in CUDA graphs with a cold L2 cache, all pieces in turn. Needs torch with CUDA.

For each piece a graph A is captured: R times (write 256 MiB, work), and for each R a graph B: R times (write 256 MiB).
A sample is (A - B) / R, with A and B replayed one after the other. R is 20, less where one run takes over 2 ms. One
sample is taken of each piece, then the next of each, so that a drift of the device meets all of them alike. Replays
begin with 150 ms that do not count: until then the same graph may replay a few tenths of a microsecond per kernel
faster. A kernel that only waits runs ahead of each replay and hides the time that the host needs to launch it.
"""

import statistics
import time

import torch

FLUSH_BYTES = 256 << 20
WAIT_CYCLES = 600_000
SETTLE_SECONDS = 0.15
RUNS_MIN, RUNS_MAX = 4, 20
GRAPH_US = 40_000
HOST_REPEATS = 20


class GraphTimer:
    def __init__(self, repeats):
        self.repeats = repeats
        self._flushed = torch.empty(FLUSH_BYTES // 4, dtype=torch.float32, device="cuda")
        self._flush_graphs = {}
        self._begin, self._end = (torch.cuda.Event(enable_timing=True) for _ in range(2))

    def measure(self, works):
        """Works by name: ({name: samples in us}, {name: why it cannot be captured})."""
        graphs, failures = {}, {}
        for name, work in works.items():
            try:
                graphs[name] = self._prepare(work)
            except Exception as failure:  # whatever a library raises: the others are still measured
                torch.cuda.synchronize()
                failures[name] = f"{type(failure).__name__}: {failure}"[:500]
        self._settle(graphs.values())
        samples = {name: [] for name in graphs}
        for _ in range(self.repeats):
            for name, pair in graphs.items():
                samples[name].append(self._sample(*pair))
        return samples, failures

    def run_cold(self, work):
        """One run of a work with a cold L2, as in its graph; it has ended when this returns."""
        def both():
            self._flush()
            work()
        self._span_us(both)

    def _prepare(self, work):
        for _ in range(3):
            work()
        torch.cuda.synchronize()
        runs = max(RUNS_MIN, min(RUNS_MAX, int(GRAPH_US / self._span_us(work))))
        if runs not in self._flush_graphs:
            self._flush_graphs[runs] = self._capture(runs, self._flush)
        return self._capture(runs, self._flush, work), runs

    def _sample(self, graph, runs):
        return (self._span_us(graph.replay) - self._span_us(self._flush_graphs[runs].replay)) / runs

    def _settle(self, pairs):
        settled = time.monotonic() + SETTLE_SECONDS
        while pairs and time.monotonic() < settled:
            for pair in pairs:
                self._sample(*pair)

    def _flush(self):
        self._flushed.fill_(1.0)

    def _span_us(self, work):
        torch.cuda._sleep(WAIT_CYCLES)
        self._begin.record()
        work()
        self._end.record()
        self._end.synchronize()
        return self._begin.elapsed_time(self._end) * 1e3

    def _capture(self, times, *steps):
        graph = torch.cuda.CUDAGraph()
        with torch.cuda.graph(graph):
            for _ in range(times):
                for step in steps:
                    step()
        graph.replay()
        torch.cuda.synchronize()
        return graph


def host_us(work, before=None):
    """Median host time of a call of `work`; the device is idle before each, and `before` is called between two."""
    work()
    samples = []
    for _ in range(HOST_REPEATS):
        if before:
            torch.cuda.synchronize()
            before()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        work()
        samples.append((time.perf_counter() - begin) * 1e6)
    torch.cuda.synchronize()
    return statistics.median(samples)
