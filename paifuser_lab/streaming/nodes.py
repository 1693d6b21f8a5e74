"""What the dispatcher knows about a worker: what it holds, and how long it takes for a frame."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

SMOOTHING = 0.2  # the share of the newest sample in the estimate
LEAST_S = 1e-6  # of a sample: an estimate of 0 would stay one
CLIP = 3.0  # a sample counts as at most three times the estimate, so that one stall is forgotten

Why = Literal["first", "again", "hedge", "probe"]


@dataclass
class Flight:
    """A group that was sent to a worker and is not answered."""

    group: int
    weight: float
    sent_at: float
    why: Why


@dataclass
class Node:
    """A worker: its groups in flight, in the order in which it serves them."""

    name: str
    flights: dict[int, Flight] = field(default_factory=dict)
    estimate: float | None = None  # seconds for one unit of weight, a moving average
    last_answer: float = float("-inf")
    last_probe: float = float("-inf")
    is_leaving: bool = False

    @property
    def outstanding(self) -> float:
        """The weight in flight."""
        return sum(flight.weight for flight in self.flights.values())

    def started_at(self, flight: Flight) -> float:
        """When the worker could begin with the group: it was sent, and the one before answered."""
        return max(flight.sent_at, self.last_answer)

    def cost(self, weight: float, unknown: float = 0.0) -> float:
        """Expected seconds until it would answer another group of this weight."""
        estimate = unknown if self.estimate is None else self.estimate
        return (self.outstanding + weight) * estimate

    def remaining(self, flight: Flight, now: float) -> float:
        """Expected seconds until it answers a group that it holds."""
        if self.estimate is None:
            return float("inf")
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
