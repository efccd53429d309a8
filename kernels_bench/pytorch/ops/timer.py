"""Times how long a call of an op keeps the device busy: replays of a CUDA graph over rotating
buffers.

A call gets its operands by index: `call(i)` uses the i-th copy. Copies together outgrow the L2 three times,
so that operands come from DRAM as they do after a whole layer; where they cannot (or need not: the
op's own traffic is larger), the row says so.
"""

import statistics
import time
from dataclasses import dataclass

import torch

SMALLEST_REPLAY_S, MOST_CALLS = 4e-4, 64
LEAST_REPEATS, MOST_REPEATS, REPEATED_S = 3, 30, 0.03


@dataclass
class Timing:
    """Microseconds of one call over replays of `calls` calls each."""

    median_us: float
    p10_us: float
    p90_us: float
    repeats: int
    calls: int


def _percentile(values, share):
    ordered = sorted(values)
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]


def _timing(replays_us, calls):
    values = [us / calls for us in replays_us]
    return Timing(statistics.median(values), _percentile(values, 0.1), _percentile(values, 0.9), len(values), calls)


def copies_of(case, l2_bytes, limit_bytes):
    """Sets of operands so that none is left in the L2 when its turn comes again."""
    return max(1, min(MOST_CALLS, 1 + int(3 * l2_bytes / max(1, case.bytes)), int(limit_bytes / max(1, case.footprint))))


def _events_us(run):
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    run()
    end.record()
    end.synchronize()
    return begin.elapsed_time(end) * 1e3


def on_gpu(call, copies):
    """Timing of `call(0)` to `call(copies - 1)` in turn."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call(0)  # sets up libraries, which cannot happen while a graph is captured
        torch.cuda.synchronize()
        first_us = _events_us(lambda: call(copies - 1))
    torch.cuda.current_stream().wait_stream(side)
    torch.cuda.synchronize()
    wanted = min(MOST_CALLS, 1 + int(SMALLEST_REPLAY_S * 1e6 / max(1.0, first_us - 5)))
    calls = -(-max(wanted, copies) // copies) * copies if first_us < 2e4 else 1
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(calls):
            call(i % copies)
    graph.replay()
    once_us = _events_us(graph.replay)
    repeats = max(LEAST_REPEATS, min(MOST_REPEATS, int(REPEATED_S * 1e6 / once_us)))
    replays = [_events_us(graph.replay) for _ in range(repeats)]
    del graph
    return _timing(replays, calls)


def on_cpu(call, copies):
    """The same columns without a GPU, for tests of the code: the host's clock."""
    call(0)
    replays = []
    for i in range(LEAST_REPEATS):
        begin = time.perf_counter()
        call(i % copies)
        replays.append((time.perf_counter() - begin) * 1e6)
    return _timing(replays, 1)


def sustained(call, copies, seconds, board):
    """Microseconds of a call in a short burst, their mean over the second half of `seconds` of nothing else,
    and the answers of `board()` in that half: means of watts and of MHz (None where they cannot be read)."""
    for i in range(copies):
        call(i)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(copies):
            call(i)
    once_us = max(1.0, _events_us(graph.replay))
    burst_us = min(_events_us(graph.replay) for _ in range(3)) / copies
    half = max(1, int(seconds * 0.5e6 / once_us))
    for _ in range(half):
        graph.replay()
    begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
    begin.record()
    for _ in range(half):
        graph.replay()
    end.record()
    seen = []
    while not end.query():
        value = board()
        if value is not None and begin.query():
            seen.append(value)
        time.sleep(0.01)
    means = [statistics.mean(column) for column in zip(*seen)] if seen else [None, None]
    return burst_us, begin.elapsed_time(end) * 1e3 / half / copies, means


def _captured(call, count):
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for i in range(count):
            call(i)
    return graph


def side_by_side(first, second, seconds):
    """Microseconds of a call of each alone, and of each while the other runs on a second stream all the time.
    Both are replayed graphs, so that the host slows neither."""
    calls = (first, second)
    alone = []
    for call in calls:
        call(0)
        torch.cuda.synchronize()
        graph = _captured(call, 4)
        graph.replay()
        alone.append(min(_events_us(graph.replay) for _ in range(3)) / 4)
        del graph
    beside = []
    streams = torch.cuda.Stream(), torch.cuda.Stream()
    for k in (0, 1):
        count = max(4, min(300, int(seconds * 1e6 / alone[k])))
        # Four times as long as the timed one alone, first to begin and last to end.
        others = max(4, min(3000, int(4 * count * alone[k] / alone[1 - k])))
        timed, other = _captured(calls[k], count), _captured(calls[1 - k], others)
        begin, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        torch.cuda.synchronize()
        with torch.cuda.stream(streams[1 - k]):
            other.replay()
        with torch.cuda.stream(streams[k]):
            begin.record()
            timed.replay()
            end.record()
        torch.cuda.synchronize()
        beside.append(begin.elapsed_time(end) * 1e3 / count)
        del timed, other
    return alone, beside
