"""Simulated workers for the dispatcher: they serve one group after another, in simulated time, and
slow down, stall, die, come, or answer twice.
"""

from __future__ import annotations

import heapq
import itertools
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from paifuser_lab.streaming.dispatcher import Dispatcher

TICK_S = 1.0  # the driver looks at least so often


@dataclass
class Fault:
    """What happens to a worker at a moment: die, slow (its service takes `factor` times as long),
    leave, join, or twice (each of its answers arrives a second time).
    """

    at: float
    kind: str
    worker: int
    factor: float = 1.0


@dataclass
class Run:
    """What a simulated stream has done."""

    released: list[int] = field(default_factory=list)
    sends: Counter[str] = field(default_factory=Counter)
    most_in_flight: int = 0
    most_unconsumed: int = 0
    ended_at: float = 0.0
    share: Counter[str] = field(default_factory=Counter)


def simulate(
    dispatcher: Dispatcher,
    speeds: Sequence[float],
    groups: int,
    faults: Sequence[Fault] = (),
    *,
    weights: Sequence[float] = (1.0,),
    limit_s: float = 1e5,
) -> Run:
    """Run `groups` groups over workers whose service takes weight × speed seconds."""
    run, order = Run(), itertools.count()
    heap: list[tuple[float, int, str, Any]] = []
    speed = {f"w{index}": factor for index, factor in enumerate(speeds)}
    free = dict.fromkeys(speed, 0.0)
    twice: set[str] = set()
    for name in speed:
        dispatcher.join(name)
    for fault in faults:
        heapq.heappush(heap, (fault.at, next(order), "fault", fault))
    now, read = 0.0, dispatcher.accepted
    while not dispatcher.is_over:
        assert now < limit_s, "the stream came to a standstill"
        for name, _ in dispatcher.overdue(now):
            dispatcher.lose(name)
            free[name] = now
            dispatcher.join(name)  # another in its place
        while dispatcher.room and read < groups:
            dispatcher.accept(read, weights[read % len(weights)])
            read += 1
        if read == groups:
            dispatcher.end()
        dispatcher.departed()
        for send in dispatcher.assign(now):
            run.sends[send.why] += 1
            free[send.node] = (
                max(now, free[send.node]) + weights[send.group % len(weights)] * (speed[send.node])
            )
            answer = ("answer", (send.node, send.group))
            for _ in range(2 if send.node in twice else 1):
                heapq.heappush(heap, (free[send.node], next(order), *answer))
        flights = [len(node.flights) for node in dispatcher.nodes.values()]
        run.most_in_flight = max([run.most_in_flight, *flights])
        run.most_unconsumed = max(run.most_unconsumed, dispatcher.accepted - dispatcher.consumed)
        released = dispatcher.release()
        run.released += released
        dispatcher.consume(len(released))
        if released:
            continue
        due = min(dispatcher.due_at(now), now + TICK_S)
        if heap and heap[0][0] <= due:
            now, _, kind, what = heapq.heappop(heap)
            if kind == "fault":
                _apply(dispatcher, what, speed, free, twice, now)
            elif what[0] in dispatcher.nodes:
                run.share[what[0]] += dispatcher.answer(*what, now)
        else:
            now = due
    run.ended_at = now
    return run


def _apply(
    dispatcher: Dispatcher,
    fault: Fault,
    speed: dict[str, float],
    free: dict[str, float],
    twice: set[str],
    now: float,
) -> None:
    name = f"w{fault.worker}"
    if fault.kind == "join":
        name = f"w{len(speed)}"
        speed[name], free[name] = fault.factor, now
        dispatcher.join(name)
    elif fault.kind == "slow":
        speed[name] *= fault.factor
    elif fault.kind == "twice":
        twice.add(name)
    elif len(dispatcher.nodes) > 1 and name in dispatcher.nodes:
        is_last = all(node.is_leaving for node in dispatcher.nodes.values() if node.name != name)
        if fault.kind == "die" and not is_last:
            dispatcher.lose(name)
        elif fault.kind == "leave" and not is_last:
            dispatcher.leave(name)
