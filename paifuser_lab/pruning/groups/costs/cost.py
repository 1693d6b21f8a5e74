"""A sum of terms, each of a few sizes: what it is, and what it loses when a group loses units."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy
from numpy.typing import NDArray

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


Floats = NDArray[numpy.float64]
Places = NDArray[numpy.int64]
Valued = Callable[[Places, Floats], Floats]  # which terms, and their sizes → what each costs


@dataclass(frozen=True)
class Term:
    """So many times what its sizes multiply to, where nothing else is said about its value."""

    times: float
    sizes: tuple[Size, ...]


@dataclass(frozen=True)
class _Part:
    """Where a group is in the terms: in which of them, in which of their sizes, and how much of it
    a unit is.
    """

    terms: Places
    at: Places
    dims: Places
    per_unit: Floats


class Cost:
    """What a model costs at the present widths of its groups."""

    def __init__(
        self,
        widths: Sequence[int],
        terms: Sequence[Term],
        constant: float = 0.0,
        valued: Valued | None = None,
    ) -> None:
        self.widths, self.kept = tuple(widths), list(widths)
        self.constant = constant
        self.times = numpy.array([term.times for term in terms], dtype=numpy.float64)
        self.valued = valued or self._multiplied
        self.sizes = numpy.ones((len(terms), max((len(term.sizes) for term in terms), default=1)))
        for index, term in enumerate(terms):
            self.sizes[index, : len(term.sizes)] = [size.at(self.kept) for size in term.sizes]
        self.parts = _parts(terms)
        self.values = self.valued(numpy.arange(len(terms)), self.sizes)

    @property
    def total(self) -> float:
        """All of it."""
        return self.constant + float(self.values.sum())

    def saved(self, group: int, kept: int) -> float:
        """What is saved when a group goes from its present width to this one."""
        if group not in self.parts:
            return 0.0
        terms = self.parts[group].terms
        return float(
            self.values[terms].sum() - self.valued(terms, self._sizes_at(group, kept)).sum()
        )

    def take(self, group: int, kept: int) -> None:
        """Let a group have this width from now on."""
        if group in self.parts:
            terms = self.parts[group].terms
            self.sizes[terms] = self._sizes_at(group, kept)
            self.values[terms] = self.valued(terms, self.sizes[terms])
        self.kept[group] = kept

    def _sizes_at(self, group: int, kept: int) -> Floats:
        part = self.parts[group]
        sizes = self.sizes[part.terms]
        sizes[part.at, part.dims] += part.per_unit * (kept - self.kept[group])
        return sizes

    def _multiplied(self, terms: Places, sizes: Floats) -> Floats:
        found: Floats = self.times[terms] * sizes.prod(1)
        return found


def _parts(terms: Sequence[Term]) -> dict[int, _Part]:
    found: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for index, term in enumerate(terms):
        for dim, size in enumerate(term.sizes):
            for group, share in size.per_unit:
                found[group].append((index, dim, share))
    parts = {}
    for group, places in found.items():
        every, dims, shares = zip(*places, strict=True)
        unique, at = numpy.unique(numpy.array(every), return_inverse=True)
        parts[group] = _Part(unique, at, numpy.array(dims), numpy.array(shares))
    return parts
