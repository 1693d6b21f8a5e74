"""Times of calls on a GPU: graphs replayed in turn, over inputs larger than the cache."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median

import torch

Run = Callable[[], object]
Clock = Callable[[Run], float]  # runs once, returns the milliseconds on the device

# caches' worth of bytes that a round reads, so that every call reads its inputs from memory
CACHES = 3
MAX_SETS = 64
MIN_CALLS = 8  # in a replay, so that an event's own microsecond is spread
HEAD_START = 200_000  # cycles, about 0.1 ms


def sets_needed(call_bytes: int, cache_bytes: int) -> int:
    """How many sets of inputs take turns so that none is still in the cache at its next turn."""
    return max(1, min(MAX_SETS, -(-CACHES * cache_bytes // max(1, call_bytes))))


def calls_of(bound: Sequence[Run]) -> list[Run]:
    """The calls of one round: every set of inputs in turn, several times where there are few."""
    return list(bound) * -(-MIN_CALLS // len(bound))


def timed_in_turn(
    candidates: Mapping[str, tuple[Run, int]], clock: Clock, rounds: int
) -> dict[str, float]:
    """Microseconds per call, the median of rounds; each round runs every candidate once, and starts
    with the next one.

    A candidate is a function that runs one round of it, and the number of calls in that.
    """
    names = list(candidates)
    samples: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            run, calls = candidates[name]
            samples[name].append(clock(run) * 1e3 / calls)
    return {name: median(times) for name, times in samples.items()}


def captured(calls: Sequence[Run]) -> Run:
    """Capture the calls in one CUDA graph, so that the host's time is excluded."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[: min(3, len(calls))]:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    # a compiler's own threads may touch the device meanwhile
    with torch.cuda.graph(graph, capture_error_mode="thread_local"):
        for call in calls:
            call()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def event_clock(run: Run) -> float:
    """Milliseconds of a run by two events; the device sleeps first, so that the host is ahead."""
    start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
    torch.cuda._sleep(HEAD_START)  # type: ignore[no-untyped-call]
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))
