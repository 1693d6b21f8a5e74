"""Where a label goes: near its dot, over no other label, over as few dots and lines as can be."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.transforms import Bbox

Spot = tuple[float, float]

RINGS = (0.8, 1.6, 2.6, 3.8, 5.2, 7.0)  # in heights of the label
ANGLES = 16
OUTSIDE, OVER_LABEL, CROSSING, OVER_LINE, OVER_DOT = 1000.0, 1000.0, 30.0, 12.0, 6.0


class Room:
    """The free space of a drawing, in pixels; labels reduce it as they are placed."""

    def __init__(
        self, inside: Bbox, labels: Sequence[Bbox], lines: Sequence[Spot], dots: Sequence[Spot]
    ) -> None:
        self.inside, self.labels, self.dots = inside, list(labels), dots
        self.lines = lines  # spots along lines that are better not covered
        self.leaders: list[tuple[Spot, Spot]] = []

    def place(self, size: Spot, dot: Spot, radius: float) -> Bbox:
        """The best box of a size for a dot's label; it is taken from now on."""
        box = min(_boxes(size, dot, radius), key=lambda one: self._cost(one, dot))
        self.labels.append(box)
        self.leaders.append((dot, _middle(box)))
        return box

    def _cost(self, box: Bbox, dot: Spot) -> float:
        is_outside = not all(self.inside.contains(*corner) for corner in box.corners())
        leader = _between(dot, _middle(box))
        return (
            math.dist(dot, _middle(box)) / box.height
            + OUTSIDE * is_outside
            + OVER_LABEL * sum(box.overlaps(other.padded(2)) for other in self.labels)
            + CROSSING * sum(other.contains(*spot) for other in self.labels for spot in leader)
            + CROSSING * sum(box.contains(*spot) for one in self.leaders for spot in _between(*one))
            + OVER_LINE * any(box.contains(*spot) for spot in self.lines)
            + OVER_DOT * sum(box.padded(3).contains(*spot) for spot in self.dots)
        )


def _between(start: Spot, end: Spot, steps: int = 12) -> list[Spot]:
    return [
        (start[0] + (end[0] - start[0]) * k / steps, start[1] + (end[1] - start[1]) * k / steps)
        for k in range(steps)
    ]


def _middle(box: Bbox) -> Spot:
    return (float(box.x0 + box.x1) / 2, float(box.y0 + box.y1) / 2)


def _boxes(size: Spot, dot: Spot, radius: float) -> list[Bbox]:
    """Boxes around a dot, ring after ring; a box beside its dot stands off by half its width."""
    width, height = size
    found = []
    for ring in RINGS:
        for step in range(ANGLES):
            angle = 2 * math.pi * step / ANGLES
            x = dot[0] + math.cos(angle) * (ring * height + radius + width / 2)
            y = dot[1] + math.sin(angle) * ((ring + 0.5) * height + radius)
            found.append(Bbox.from_bounds(x - width / 2, y - height / 2, width, height))
    return found
