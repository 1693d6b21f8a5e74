"""How long a dimension is when groups have so many units: what stays whatever goes, and so much for
each unit.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy

from ..grouping import Structure
from ..product import Row


@dataclass(frozen=True)
class Size:
    """A length that falls with the units of groups."""

    stays: float
    per_unit: tuple[tuple[int, float], ...] = ()  # a group, by number, and how much a unit of it is

    def at(self, kept: Sequence[int]) -> float:
        """The length when groups keep so many units."""
        return self.stays + sum(share * kept[group] for group, share in self.per_unit)


class Sizes:
    """Rows of channel ids as lengths."""

    def __init__(self, structure: Structure) -> None:
        self.classes = structure.classes
        self.widths = [group.width for group in structure.groups]
        self.owners = numpy.full(len(structure.classes), -1)
        for index, units in enumerate(structure.units):
            self.owners[list(units)] = index

    def of(self, row: Row) -> Size:
        """The length of a row; where only some of a group's units are in it, what is lost with one
        on average.
        """
        if isinstance(row, int):
            return Size(float(row))
        owners, counts = numpy.unique(self.owners[self.classes[row]], return_counts=True)
        found = dict(zip(owners.tolist(), counts.tolist(), strict=True))
        stays = float(found.pop(-1, 0))
        return Size(
            stays, tuple((group, count / self.widths[group]) for group, count in found.items())
        )
