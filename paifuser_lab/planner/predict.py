"""What an unmeasured point of a search is expected to reach, by the points measured before.

Effects multiply: a point's latency, size or memory is that of the unchanged model times the ratio
of each part measured alone: how the layers compute, the width, the memory, the threads. Losses add
up. Where a part was not measured, the profile's expectation stands in for it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field

from ..profiler.expected import expected_of
from ..records import Profile
from .space import IN_TORCH, Change, Point, Space

USUAL_ERROR = 0.2  # of the logarithm of a ratio, until points of several parts were measured
UNKNOWN_ERROR = 0.7  # of a part that neither was measured nor is expected
USUAL_IN_TORCH = 0.9  # of the time, left by layers that are joined or replayed
FEW = 4  # points of several parts, below which the usual error stands


@dataclass(frozen=True)
class Prediction:
    """The ratio to the unchanged model, its error as a logarithm, and the loss."""

    ratio: float
    error: float
    loss: float

    @property
    def best(self) -> float:
        """The ratio, if the prediction is too pessimistic by twice its error."""
        return self.ratio * math.exp(-2 * self.error)


@dataclass
class Predictor:
    """Learns from each measured point: its ratio to the unchanged model and its loss."""

    expected: Mapping[Point, tuple[float, float]] = field(default_factory=dict)  # ratio, error
    ratios: dict[Point, float] = field(default_factory=dict)
    losses: dict[Point, float] = field(default_factory=dict)

    def learn(self, point: Point, ratio: float, loss: float) -> None:
        """Keep what was measured of a point."""
        self.ratios[point], self.losses[point] = ratio, loss

    def __call__(self, point: Point) -> Prediction:
        """The product of the ratios and the sum of the losses of a point's parts."""
        if point in self.ratios:
            return Prediction(self.ratios[point], 0.0, self.losses[point])
        parts = [self._part(part) for part in parts_of(point)]
        # each part was measured with the folding that all have
        folded = self.ratios.get(Point(), 1.0)
        ratio = folded * math.prod(part.ratio / folded for part in parts)
        error = math.hypot(self.error, *(part.error for part in parts))
        return Prediction(ratio, error, sum(max(part.loss, 0.0) for part in parts))

    def left(self, point: Point) -> float:
        """What a part alone is expected to leave of the goal: by the profile, of a cut its share of
        the channels, else as much as its engine in fp32. An engine that was not measured is tried
        before the formats in it, at once if it takes the whole graph, and a lighter cut where the
        deeper one may lose too much: late.
        """
        if point in self.expected:
            return self.expected[point][0]
        if point.keep < 1:
            return 1.0 if any(cut.keep < point.keep for cut in self.ratios) else point.keep
        alone = Point(engine=point.engine)
        if point != alone:
            return self.ratios.get(alone, math.inf)
        in_torch = point.engine in IN_TORCH or "replayed" in point.engine
        return self.ratios.get(alone, USUAL_IN_TORCH if in_torch else 0.0)

    @property
    def error(self) -> float:
        """How far the product of the parts was from what points of several parts reached."""
        folded = self.ratios.get(Point(), 1.0)
        residuals = [
            math.log(ratio / folded) - sum(math.log(self.ratios[part] / folded) for part in parts)
            for point, ratio in self.ratios.items()
            if len(parts := parts_of(point)) > 1 and all(part in self.ratios for part in parts)
        ]
        if len(residuals) < FEW:
            return USUAL_ERROR
        return math.sqrt(sum(value**2 for value in residuals) / len(residuals))

    def _part(self, part: Point) -> Prediction:
        if part in self.ratios:
            return Prediction(self.ratios[part], 0.0, self.losses[part])
        ratio, error = self.expected.get(part, (1.0, UNKNOWN_ERROR))
        return Prediction(ratio, error, 0.0)


def parts_of(point: Point) -> list[Point]:
    """The point's changes, each alone; cutting and training are one, and so are an engine and the
    format in it, but where layers stay torch's.
    """
    runs = [Point(engine=point.engine, format=point.format)]
    if point.engine in IN_TORCH:
        runs = [Point(engine=point.engine), Point(format=point.format)]
    parts = [
        *runs,
        Point(keep=point.keep, is_trained=point.is_trained),
        Point(memory=point.memory),
        Point(threads=point.threads),
    ]
    return [part for part in parts if part != Point()]


def in_order(
    changes: Iterable[Change], goal: str, left: Callable[[Point], float]
) -> Iterator[Change]:
    """What is for the goal first, what takes long to build last; then what is expected to leave
    least of the time when its turn comes: each that was measured changes that.
    """
    is_small = goal in ("size", "memory")

    def key(change: Change) -> tuple[bool, bool, float]:
        return is_small and not change.is_smaller, change.is_slow, left(change.point)

    waiting = list(changes)
    while waiting:
        waiting.sort(key=key)
        yield waiting.pop(0)


def expectations(space: Space, profile: Profile | None) -> dict[Point, tuple[float, float]]:
    """By a profile, what each change alone leaves of the latency, and the error of that."""
    if profile is None:
        return {}
    by_step = {repr(each.kind.step): each for each in expected_of(profile)}
    expected = {}
    for change in space.singles():
        known = [by_step[text] for step in change.steps if (text := repr(step)) in by_step]
        if known and known[0].before_ms:
            best = min(known, key=lambda each: each.left_ms)
            expected[change.point] = best.left_ms / best.before_ms, best.error
    return expected
