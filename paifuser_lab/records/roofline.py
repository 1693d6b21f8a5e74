"""Layers under what a machine can do at most."""

from __future__ import annotations

from .hardware import Ceiling
from .layer_profile import Bound
from .record import Record
from .workload_name import AboutWorkload


class Point(Record):
    """A layer on a roofline."""

    layer: str
    kind: str
    intensity: float
    gflops: float
    ms: float
    bound: Bound | None = None


class Roofline(Record):
    """Layers by operations a byte and operations a second, under what the machine can do."""

    workload: AboutWorkload
    machine: str
    ceiling: Ceiling
    points: tuple[Point, ...]

    def __repr__(self) -> str:
        return f"Roofline({self.workload}: {len(self.points)} layers)"
