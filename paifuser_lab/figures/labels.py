"""Place labels near their dots, over no other label and over as few dots and lines as possible."""

from __future__ import annotations

import math
from collections.abc import Sequence

from matplotlib.transforms import Bbox

Spot = tuple[float, float]

RINGS = (0.8, 1.6, 2.6, 3.8, 5.2, 7.0)  # in heights of the label
ANGLES = 16
OUTSIDE, OVER_LABEL, CROSSING, OVER_LINE, OVER_DOT = 1000.0, 1000.0, 30.0, 12.0, 6.0


class Room:
    """The free space of a drawing in pixels, reduced by each placed label."""

    def __init__(
        self, inside: Bbox, labels: Sequence[Bbox], lines: Sequence[Spot], dots: Sequence[Spot]
    ) -> None:
        self.inside, self.labels, self.dots = inside, list(labels), dots
        self.lines = lines  # points on lines that labels should not cover
        self.leaders: list[tuple[Spot, Spot]] = []

    def place(self, size: Spot, dot: Spot, radius: float) -> Bbox:
        """Find the best box of this size for a dot's label, and reserve it."""
        box = min(_boxes(size, dot, radius), key=lambda box: self._cost(box, dot))
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
            + CROSSING
            * sum(box.contains(*spot) for line in self.leaders for spot in _between(*line))
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
    """Candidate boxes around a dot, ring after ring."""
    width, height = size
    boxes = []
    for ring in RINGS:
        for step in range(ANGLES):
            angle = 2 * math.pi * step / ANGLES
            x = dot[0] + math.cos(angle) * (ring * height + radius + width / 2)
            y = dot[1] + math.sin(angle) * ((ring + 0.5) * height + radius)
            boxes.append(Bbox.from_bounds(x - width / 2, y - height / 2, width, height))
    return boxes
