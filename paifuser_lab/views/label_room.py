"""Names beside points, over no other name and few points, in pixels of a narrow page."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy

from .picture import LETTERS, text_width

Spot = tuple[float, float]
RINGS = (0.7, 1.4, 2.4, 3.6, 5.0, 7.0)  # in heights of the name
ANGLES = 16
RADIUS, STEPS = 5.0, 12  # pixels of a dot; points of a line to a name
OUTSIDE, OVER_NAME, CROSSING, OVER_LINE, OVER_DOT = 1000.0, 1000.0, 30.0, 12.0, 6.0


class Box(NamedTuple):
    """A box by its middle and its size."""

    x: float
    y: float
    width: float
    height: float

    def overlaps(self, other: Box, margin: float = 0.0) -> bool:
        """Whether two boxes share room, or stand nearer than a margin."""
        across = abs(self.x - other.x) < (self.width + other.width) / 2 + margin
        return across and abs(self.y - other.y) < (self.height + other.height) / 2 + margin

    def holds(self, spots: Iterable[Spot], margin: float = 0.0) -> int:
        """How many spots are in it."""
        off = numpy.abs(numpy.asarray([*spots] or [(math.inf, 0.0)]) - (self.x, self.y))
        reach = (self.width / 2 + margin, self.height / 2 + margin)
        return int((off < reach).all(axis=1).sum())


class Room:
    """The free room of a panel of this size, reduced by each placed name."""

    def __init__(
        self, size: Spot, names: Iterable[Box], lines: Sequence[Spot], dots: Sequence[Spot]
    ) -> None:
        self.size, self.names, self.lines, self.dots = size, [*names], lines, dots
        self.leaders: list[Spot] = []

    def place(self, width: float, height: float, dot: Spot, radius: float) -> Box:
        """Find the best box of this size for a dot's name, and reserve it."""
        box = min(_boxes(width, height, dot, radius), key=lambda box: self._cost(box, dot))
        self.names.append(box)
        self.leaders += _between(dot, box)
        return box

    def _cost(self, box: Box, dot: Spot) -> float:
        leader = _between(dot, box)
        ends = zip((box.x, box.y), (box.width, box.height), self.size, strict=True)
        is_outside = any(at < size / 2 or at > most - size / 2 for at, size, most in ends)
        return (
            math.dist(dot, box[:2]) / box.height
            + OUTSIDE * is_outside
            + OVER_NAME * sum(box.overlaps(name, 2) for name in self.names)
            + CROSSING * (sum(name.holds(leader) for name in self.names) + box.holds(self.leaders))
            + OVER_LINE * bool(box.holds(self.lines))
            + OVER_DOT * box.holds(self.dots, 3)
        )


def offsets(
    room: Room, texts: Sequence[str], dots: Sequence[Spot]
) -> tuple[list[float], list[float]]:
    """How far to the right and up of its dot each text stands."""
    boxes = [room.place(text_width(text) + 4, LETTERS + 4, dot, RADIUS)
             for text, dot in zip(texts, dots, strict=True)]  # fmt: skip
    by = [(box.x - dot[0], box.y - dot[1]) for box, dot in zip(boxes, dots, strict=True)]
    return [across for across, _ in by], [up for _, up in by]


def heads(dots: Sequence[Spot], near: float) -> list[tuple[int, int]]:
    """The first dot of each cluster, with the number of others in it."""
    counts: dict[int, int] = {}
    for index, dot in enumerate(dots):
        head = next((head for head in counts if math.dist(dots[head], dot) < near), None)
        counts[index if head is None else head] = 0 if head is None else counts[head] + 1
    return list(counts.items())


def _between(start: Spot, box: Box) -> list[Spot]:
    across, up = box.x - start[0], box.y - start[1]
    return [(start[0] + across * k / STEPS, start[1] + up * k / STEPS) for k in range(STEPS)]


def _boxes(width: float, height: float, dot: Spot, radius: float) -> Iterable[Box]:
    """Candidate boxes around a dot, ring after ring."""
    for ring in RINGS:
        for step in range(ANGLES):
            angle = 2 * math.pi * step / ANGLES
            x = dot[0] + math.cos(angle) * (ring * height + radius + width / 2)
            y = dot[1] + math.sin(angle) * ((ring + 0.5) * height + radius)
            yield Box(x, y, width, height)
