"""Times of calls on a GPU: graphs replayed in turn, over inputs that the cache cannot hold. Stands
on torch.cuda.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from statistics import median
from typing import Any

import torch

Run = Callable[[], object]
Clock = Callable[[Run], float]  # runs something once, gives the milliseconds it took on the device

# a round goes through as many bytes as this many caches hold, so that every call finds its inputs
# in memory
CACHES = 3
MOST_SETS = 64
LEAST_CALLS = 8  # in a replay, so that an event's own microsecond is spread

HEAD_START = 200_000  # cycles, about 0.1 ms


def sets_needed(call_bytes: int, cache_bytes: int) -> int:
    """How many sets of inputs must take turns so that none is left in the cache when its turn comes
    again.
    """
    return max(1, min(MOST_SETS, -(-CACHES * cache_bytes // max(1, call_bytes))))


def calls_of(bound: Sequence[Run]) -> list[Run]:
    """The calls of one round: every set of inputs in turn, several times where there are few."""
    return list(bound) * -(-LEAST_CALLS // len(bound))


def timed_in_turn(
    candidates: Mapping[str, tuple[Run, int]], clock: Clock, rounds: int
) -> dict[str, float]:
    """Microseconds a call, the median of rounds; each round runs everybody once, and another begins
    each time.

    A candidate is a round of it and the number of calls in that.
    """
    names = list(candidates)
    taken: dict[str, list[float]] = {name: [] for name in names}
    for turn in range(rounds):
        start = turn % len(names)
        for name in names[start:] + names[:start]:
            run, calls = candidates[name]
            taken[name].append(clock(run) * 1e3 / calls)
    return {name: median(times) for name, times in taken.items()}


def captured(calls: Sequence[Run]) -> Run:
    """The calls as one CUDA graph: the host's time is left out."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        for call in calls[: min(3, len(calls))]:
            call()
    torch.cuda.current_stream().wait_stream(stream)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(
        graph, capture_error_mode="thread_local"
    ):  # a compiler's own threads may touch the device meanwhile
        for call in calls:
            call()
    graph.replay()
    torch.cuda.synchronize()
    return graph.replay


def event_clock(run: Run) -> float:
    """Milliseconds between two events of the device around a run; the device sleeps before, so that
    the host is ahead of it.
    """
    start, end = (_event() for _ in range(2))
    torch.cuda._sleep(HEAD_START)  # type: ignore[no-untyped-call]
    start.record()
    run()
    end.record()
    end.synchronize()
    return float(start.elapsed_time(end))


def _event() -> Any:
    return torch.cuda.Event(enable_timing=True)  # type: ignore[no-untyped-call]
