"""Which worker gets which group, and what is sent twice: a state machine without threads, over a
clock that is passed in.

Groups have consecutive numbers. Each is answered at least once and released once, in order,
although workers slow down, stall, leave and die. A group goes to the worker with the least (weight
in flight + its own) × estimate, with at most `limit` in flight each, unless it would hold up the
order for longer than the window lasts. The group that everything waits for is hedged: sent to a
second worker when it takes `hedge` times its holder's estimate, or when a worker without work would
answer earlier.
"""

from __future__ import annotations

import heapq
from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Literal

from ..errors import StreamError

PROBE_AFTER = 3.0  # a worker too slow for work gets a copy after this many of its own estimates
GAIN = 2.0  # a worker without work copies a group that it would answer in half of what remains
SMOOTHING = 0.2  # the share of the newest sample in the estimate
LEAST_S = 1e-6  # of a sample: an estimate of 0 would stay one
NEVER = float("inf")
CLIP = 3.0  # a sample counts as at most three times the estimate, so that one stall is forgotten

Why = Literal["first", "again", "hedge", "probe"]


@dataclass
class Flight:
    """A group that was sent to a worker and is not answered."""

    group: int
    weight: float
    sent_at: float


@dataclass
class Node:
    """A worker: its groups in flight, in the order in which it serves them."""

    name: str
    flights: dict[int, Flight] = field(default_factory=dict)
    estimate: float | None = None  # seconds for one unit of weight, a moving average
    last_answer: float = float("-inf")
    last_probe: float = float("-inf")
    is_leaving: bool = False

    def started_at(self, flight: Flight) -> float:
        """When the worker could begin with the group: it was sent, and the one before answered."""
        return max(flight.sent_at, self.last_answer)

    def cost(self, weight: float) -> float:
        """Expected seconds until it would answer another group of this weight."""
        outstanding = sum(flight.weight for flight in self.flights.values())
        return (outstanding + weight) * (self.estimate or 0.0)

    def remaining(self, flight: Flight, now: float) -> float:
        """Expected seconds until it answers a group that it holds."""
        if self.estimate is None:
            return NEVER
        ahead = 0.0
        for other in self.flights.values():
            ahead += other.weight
            if other is flight:
                break
        return max(ahead * self.estimate - (now - self.started_at(flight)), 0.0)

    def answer(self, flight: Flight, now: float, took: float = 0.0) -> None:
        """Learn from an answer how long a unit of weight takes: at least what the worker measured
        itself, as two answers may be noticed at once.
        """
        sample = max(now - self.started_at(flight), took, LEAST_S) / flight.weight
        self.last_answer = now
        if self.estimate is None:
            self.estimate = sample
            return
        known = min(self.estimate, CLIP * sample)
        self.estimate = known + SMOOTHING * (min(sample, CLIP * known) - known)


@dataclass(frozen=True)
class Send:
    """One group to send to one worker."""

    node: str
    group: int
    why: Why


class Dispatcher:
    """Groups from `start` on, over workers that join and leave."""

    def __init__(
        self,
        *,
        start: int = 0,
        limit: int = 2,
        window: int | None = None,
        hedge: float | None = 3.0,
        timeout_s: float = NEVER,
    ) -> None:
        self.limit, self.hedge, self.timeout_s = limit, hedge, timeout_s
        self._window = window
        self.nodes: dict[str, Node] = {}
        self.accepted = self.head = self.consumed = start
        self.is_paused = self.is_ended = False
        self._queue: list[int] = []  # a heap of groups to send
        self._again: set[int] = set()  # those of them that were sent before
        self._weights: dict[int, float] = {}
        self._holders: dict[int, dict[str, Flight]] = {}
        self._answered: set[int] = set()

    # workers

    def join(self, name: str) -> None:
        """A worker is ready."""
        self.nodes[name] = Node(name)

    def leave(self, name: str) -> None:
        """Send a worker nothing more; `departed` names it once it holds nothing."""
        if (node := self.nodes.get(name)) is not None:
            node.is_leaving = True

    def departed(self) -> list[str]:
        """The workers that were to leave and hold nothing more; they are forgotten."""
        names = [node.name for node in self.nodes.values() if node.is_leaving and not node.flights]
        for name in names:
            del self.nodes[name]
        return names

    def lose(self, name: str) -> None:
        """A worker is gone; the groups that it held and that have no answer are sent again."""
        node = self.nodes.pop(name, None)
        for group in node.flights if node is not None else ():
            self._drop(name, group)

    # groups

    @property
    def window(self) -> int:
        """How many groups may be between the last one consumed and the last one read."""
        return self._window or 4 * max(len(self.nodes), 1)

    @property
    def room(self) -> int:
        """How many more groups may be accepted now."""
        return 0 if self.is_ended else max(self.consumed + self.window - self.accepted, 0)

    @property
    def is_over(self) -> bool:
        """Whether the last group has been released."""
        return self.is_ended and self.head == self.accepted

    @property
    def waiting(self) -> int:
        """How many groups wait to be sent."""
        return len(self._queue)

    @property
    def held(self) -> int:
        """How many groups are answered and not consumed."""
        return len(self._answered) + self.head - self.consumed

    def is_open(self, group: int) -> bool:
        """Whether a group is accepted and has no answer."""
        return self.head <= group < self.accepted and group not in self._answered

    def accept(self, group: int, weight: float = 1.0) -> None:
        """The next group was read."""
        if group != self.accepted:
            raise StreamError(f"Group {group} was read where group {self.accepted} was expected.")
        self.accepted += 1
        self._weights[group] = weight
        heapq.heappush(self._queue, group)

    def end(self) -> None:
        """No more groups will be read."""
        self.is_ended = True

    def answer(self, name: str, group: int, now: float, took: float = 0.0) -> bool:
        """A worker answered, in `took` seconds as it says; returns whether it is the first."""
        node = self.nodes.get(name)
        if node is not None and (flight := node.flights.get(group)) is not None:
            node.answer(flight, now, took)
        self._forget(name, group)
        if not self.is_open(group):
            return False
        self._answered.add(group)
        if group in self._queue:
            self._queue.remove(group)
            heapq.heapify(self._queue)
        self._again.discard(group)
        return True

    def give_back(self, name: str, group: int, now: float) -> None:
        """A worker is alive and has not finished the group; it is sent again."""
        if (node := self.nodes.get(name)) is not None and group in node.flights:
            node.last_answer = now
        self._drop(name, group)

    def release(self) -> list[int]:
        """The groups whose turn it is, in order; each is returned once."""
        released = []
        while self.head in self._answered:
            self._answered.remove(self.head)
            self._weights.pop(self.head, None)
            self._holders.pop(self.head, None)
            released.append(self.head)
            self.head += 1
        return released

    def consume(self, count: int = 1) -> None:
        """The reader of the results has finished with the next groups, so more may be read."""
        self.consumed = min(self.consumed + count, self.head)

    # decisions

    def assign(self, now: float) -> list[Send]:
        """What to send now; the caller sends all of it."""
        return [] if self.is_paused else [*self._first(now), *self._copies(now)]

    def overdue(self, now: float) -> list[tuple[str, int]]:
        """Workers that have held a group for longer than `timeout_s`, and the group."""
        return [
            (node.name, flight.group)
            for node in self.nodes.values()
            for flight in list(node.flights.values())[:1]
            if now - node.started_at(flight) >= self.timeout_s
        ]

    def due_at(self, now: float) -> float:
        """When, after now, time alone makes something due: a timeout, a hedge or a probe."""
        moments = [self._late_at()]
        for node in self.nodes.values():
            for flight in list(node.flights.values())[:1]:
                moments.append(node.started_at(flight) + self.timeout_s)
            if not node.flights and self._queue:
                moments.append(self._probe_at(node))
        return min((moment for moment in moments if moment > now), default=NEVER)

    def _first(self, now: float) -> Iterator[Send]:
        """Groups that nobody holds, the earliest first."""
        while self._queue:
            group = self._queue[0]
            if (node := self._choose(group)) is None:
                return
            heapq.heappop(self._queue)
            why: Why = "again" if group in self._again else "first"
            self._again.discard(group)
            yield self._send(node, group, now, why)

    def _copies(self, now: float) -> Iterator[Send]:
        """Hedges of what is waited for, and probes of workers that get no work."""
        if now >= self._late_at() and (node := self._best(self.head)) is not None:
            yield self._send(node, self.head, now, "hedge")
        for group in self._alone() if self.hedge is not None and not self._queue else ():
            if not any(not node.flights for node in self.nodes.values()):
                return
            if (node := self._earlier(group, now)) is not None:
                yield self._send(node, group, now, "hedge")
        yield from self._probes(now)

    def _probes(self, now: float) -> Iterator[Send]:
        for node in self.nodes.values():
            if not self._queue or node.flights or node.is_leaving or now < self._probe_at(node):
                continue
            groups = [group for group in self._alone() if node.name not in self._holders[group]]
            if groups:
                node.last_probe = now
                yield self._send(node, groups[-1], now, "probe")

    def _choose(self, group: int) -> Node | None:
        """The worker for a group that nobody holds; None if it is better to wait for one."""
        node = self._best(group)
        if node is None or node.estimate is None:
            return node
        others = [other for other in self.nodes.values() if other is not node]
        rate = sum(1 / other.estimate for other in others if other.estimate)
        if not rate or not any(other.flights for other in others):
            return node
        weight = self._weights[group]
        before = sum(1 for earlier in range(self.head, group) if earlier not in self._answered)
        lasts = (before + self.window) * weight / rate
        return node if node.cost(weight) <= lasts else None

    def _best(self, group: int) -> Node | None:
        """The worker that would answer first, among those with a free place."""
        holders = self._holders.get(group, {})
        free = [
            node
            for node in self.nodes.values()
            if not node.is_leaving
            and node.name not in holders
            and len(node.flights) < (self.limit if node.estimate is not None else 1)
        ]
        weight = self._weights[group]
        return min(free, key=lambda node: (node.cost(weight), len(node.flights)), default=None)

    def _alone(self) -> list[int]:
        """Groups without an answer that one worker holds, the earliest first."""
        return [
            group
            for group in range(self.head, self.accepted)
            if group not in self._answered and len(self._holders.get(group, ())) == 1
        ]

    def _earlier(self, group: int, now: float) -> Node | None:
        """A worker without work that would answer a group well before the one that holds it."""
        node = self._best(group)
        if node is None or node.flights or node.estimate is None:
            return None
        (name,) = self._holders[group]
        holder = self.nodes[name]
        remaining = holder.remaining(holder.flights[group], now)
        known = remaining < NEVER
        return node if known and remaining > GAIN * node.cost(self._weights[group]) else None

    def _late_at(self) -> float:
        """When the group that everything waits for is late; never if it is not held by one."""
        holders = self._holders.get(self.head, {})
        if self.hedge is None or not self.is_open(self.head) or len(holders) != 1:
            return NEVER
        ((name, flight),) = holders.items()
        node = self.nodes[name]
        known = [other.estimate for other in self.nodes.values() if other.estimate is not None]
        estimate = max(known, default=NEVER) if node.estimate is None else node.estimate
        return node.started_at(flight) + self.hedge * flight.weight * estimate

    def _probe_at(self, node: Node) -> float:
        if node.estimate is None:
            return NEVER
        return max(node.last_answer, node.last_probe) + PROBE_AFTER * node.estimate

    # who holds what

    def _send(self, node: Node, group: int, now: float, why: Why) -> Send:
        flight = Flight(group, self._weights[group], now)
        node.flights[group] = flight
        self._holders.setdefault(group, {})[node.name] = flight
        return Send(node.name, group, why)

    def _forget(self, name: str, group: int) -> None:
        if (node := self.nodes.get(name)) is not None:
            node.flights.pop(group, None)
        self._holders.get(group, {}).pop(name, None)

    def _drop(self, name: str, group: int) -> None:
        """Take a group from a worker; it is queued again if nobody else holds it."""
        self._forget(name, group)
        if self.is_open(group) and not self._holders.get(group) and group not in self._queue:
            heapq.heappush(self._queue, group)
            self._again.add(group)
