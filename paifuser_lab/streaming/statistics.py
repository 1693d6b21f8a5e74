"""Counts and durations of a running stream, and the report of them."""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Iterable, Sequence
from typing import Any

from ..records import Latency, SetAside, StreamEvent, StreamNode, StreamReport
from ..records.stream import EventKind, NodeState
from .dispatcher import Dispatcher
from .stage import Result

KEPT = 4096  # durations of each kind, from the latest frames
MARKS = 200  # events, frames set aside, and workers that are gone
RATES = 600
RATE_EVERY_S = 0.5


class _Worker:
    """What one worker has done, also after it is gone; the attributes are fields of its record."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.state: NodeState = "up"
        self.groups = self.frames = self.hedges = self.failures = 0


class Statistics:
    """Filled by the driver, under its lock."""

    def __init__(
        self,
        *,
        source: str,
        engine: str,
        stages: Sequence[str],
        sink: str,
        expected: int | None,
    ) -> None:
        self._names = {"source": source, "engine": engine, "sink": sink}
        self._stages, self._expected = tuple(stages), expected
        self.begun_at = time.monotonic()
        self.ended_at: float | None = None
        self.counts: Counter[str] = Counter()
        self.frames = self.groups = self._answered = 0
        self.resumed_at: int | None = None
        self.message = ""
        self.failed_in: Counter[str] = Counter()
        self._workers: dict[str, _Worker] = {}
        self._events: deque[StreamEvent] = deque(maxlen=MARKS)
        self.set_aside: deque[SetAside] = deque(maxlen=MARKS)
        self._latencies: deque[float] = deque(maxlen=KEPT)
        self._stage_ms: dict[str, deque[float]] = {}
        self._rates: deque[tuple[float, float]] = deque(maxlen=RATES)
        self._since = (self.begun_at, 0)
        self._delivered_at: float | None = None
        self._longest_gap_s = 0.0

    def mark(
        self, kind: EventKind, *, node: str = "", group: int | None = None, text: str = ""
    ) -> None:
        """Count an event, and keep it among the latest."""
        self.counts[kind] += 1
        at_s = time.monotonic() - self.begun_at
        self._events.append(StreamEvent(at_s=at_s, kind=kind, node=node, group=group, text=text))

    def join(self, node: str, host: str) -> None:
        """A worker is ready."""
        self._workers[node] = _Worker(host)
        self.mark("joined", node=node, text=host)

    def part(self, node: str, state: NodeState, reason: str = "") -> None:
        """A worker has left, or is lost."""
        worker = self._workers.setdefault(node, _Worker(""))
        worker.state = state
        worker.failures += state == "lost"
        self.mark("left" if state == "left" else "lost", node=node, text=reason)
        gone = [name for name, known in self._workers.items() if known.state != "up"]
        for name in gone[:-MARKS]:
            del self._workers[name]

    def hedge(self, node: str, group: int) -> None:
        """A second worker was sent a group."""
        if node in self._workers:
            self._workers[node].hedges += 1
        self.mark("hedged", node=node, group=group)

    def answer(self, node: str, frames: int, stage_s: Sequence[float], waited_s: float) -> None:
        """The first answer to a group, or to a part of it."""
        self._answered += frames
        if (worker := self._workers.get(node)) is not None:
            worker.groups += 1
            worker.frames += frames
        named = [*zip(self._stages, stage_s, strict=False), ("waiting", waited_s - sum(stage_s))]
        for name, seconds in named:
            kept = self._stage_ms.setdefault(name, deque(maxlen=KEPT))
            kept.append(1e3 * max(seconds, 0.0) / max(frames, 1))

    def deliver(self, results: Iterable[Result]) -> None:
        """A group was delivered."""
        now = time.monotonic()
        if self._delivered_at is not None:
            self._longest_gap_s = max(self._longest_gap_s, now - self._delivered_at)
        self._delivered_at = now
        self.groups += 1
        for result in results:
            self.frames += 1
            if result.error is None:
                self._latencies.append(result.latency_ms)
                continue
            error = result.error
            self.failed_in[error.stage] += 1
            self.set_aside.append(
                SetAside(index=result.index, stage=error.stage, message=error.message)
            )
            self.mark("set aside", text=f"frame {result.index}: {error}")
        at, frames = self._since
        if now - at >= RATE_EVERY_S:
            self._rates.append((now - self.begun_at, (self.frames - frames) / (now - at)))
            self._since = (now, self.frames)

    def report(self, dispatcher: Dispatcher, state: str) -> StreamReport:
        """The statistics as a record."""
        elapsed = (self.ended_at or time.monotonic()) - self.begun_at
        stages = (self._latency(name, kept) for name, kept in self._stage_ms.items())
        fields: dict[str, Any] = {
            **self._names,
            "state": state,
            "stages": self._stages,
            "expected_frames": self._expected,
            "frames": self.frames,
            "groups": self.groups,
            "elapsed_s": elapsed,
            "frames_per_s": self.frames / elapsed if elapsed > 0 else 0.0,
            "latency": self._latency("frame", self._latencies) if self._latencies else None,
            "stage_latency": tuple(stages),
            "waiting_groups": dispatcher.waiting,
            "in_flight_groups": sum(len(node.flights) for node in dispatcher.nodes.values()),
            "held_groups": dispatcher.held,
            "window": dispatcher.window,
            "nodes": tuple(self._node(name, dispatcher) for name in self._workers),
            "hedged": self.counts["hedged"],
            "sent_again": self.counts["sent again"],
            "duplicates": self.counts["duplicate"],
            "corrupt": self.counts["corrupt"],
            "set_aside": self.counts["set aside"],
            "lost_nodes": self.counts["lost"],
            "hung": self.counts["hung"],
            "longest_gap_ms": 1e3 * self._longest_gap_s,
            "resumed_at": self.resumed_at,
            "failures": tuple(self.set_aside),
            "events": tuple(self._events),
            "rates": tuple(self._rates),
            "message": self.message,
        }
        return StreamReport(**fields)

    def _node(self, name: str, dispatcher: Dispatcher) -> StreamNode:
        worker, node = self._workers[name], dispatcher.nodes.get(name)
        estimate = None if node is None else node.estimate
        return StreamNode(
            name=name,
            **vars(worker),
            share=worker.frames / self._answered if self._answered else 0.0,
            estimate_ms=None if estimate is None else 1e3 * estimate,
            in_flight=0 if node is None else len(node.flights),
        )

    @staticmethod
    def _latency(name: str, durations_ms: Iterable[float]) -> Latency:
        ordered = sorted(durations_ms)
        p50, p95, p99 = (ordered[int(share * len(ordered))] for share in (0.5, 0.95, 0.99))
        return Latency(name=name, p50_ms=p50, p95_ms=p95, p99_ms=p99, count=len(ordered))
