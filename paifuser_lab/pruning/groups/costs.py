"""The cost of a model by the widths of its groups: a sum of terms, each a product of sizes."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

import numpy
from numpy.typing import NDArray
from torch import nn

from .grouping import Flags, Structure
from .label_space import Row

FLOPS_PER_MAC = 2


@dataclass(frozen=True)
class Size:
    """A length that depends linearly on the units of groups."""

    stays: float
    per_unit: tuple[tuple[int, float], ...] = ()  # (a group's index, the length per unit)

    def at(self, kept: Sequence[int]) -> float:
        """The length when groups keep these numbers of units."""
        return self.stays + sum(share * kept[group] for group, share in self.per_unit)


class Sizes:
    """Rows of channel ids as lengths, in terms of the groups that can lose units."""

    def __init__(self, structure: Structure) -> None:
        self.classes = structure.classes
        self.widths = [group.width for group in structure.groups]
        self.owners = numpy.full(len(structure.classes), -1)
        for index, units in enumerate(structure.units):
            if structure.groups[index].pinned is None:
                self.owners[list(units)] = index

    def of(self, row: Row) -> Size:
        """The length of a row; the average per unit where it holds only some of a group's units."""
        if isinstance(row, int):
            return Size(float(row))
        owners, counts = numpy.unique(self.owners[self.classes[row]], return_counts=True)
        by_group = dict(zip(owners.tolist(), counts.tolist(), strict=True))
        stays = float(by_group.pop(-1, 0))
        return Size(
            stays, tuple((group, count / self.widths[group]) for group, count in by_group.items())
        )


Floats = NDArray[numpy.float64]
Indices = NDArray[numpy.int64]
TermCosts = Callable[[Indices, Floats], Floats]  # the terms' indices, their sizes → their costs


@dataclass(frozen=True)
class Term:
    """`times` the product of its sizes, unless the cost computes its terms otherwise."""

    times: float
    sizes: tuple[Size, ...]


@dataclass(frozen=True)
class _Part:
    """Where a group occurs: the terms, which of their sizes, and the length per unit."""

    terms: Indices
    at: Indices
    dims: Indices
    per_unit: Floats


class Cost:
    """The cost of a model at the current widths of its groups."""

    def __init__(
        self,
        widths: Sequence[int],
        terms: Sequence[Term],
        constant: float = 0.0,
        term_costs: TermCosts | None = None,
    ) -> None:
        self.widths, self.kept = tuple(widths), list(widths)
        self.constant = constant
        self.times = numpy.array([term.times for term in terms], dtype=numpy.float64)
        self.term_costs = term_costs or self._multiplied
        self.sizes = numpy.ones((len(terms), max((len(term.sizes) for term in terms), default=1)))
        for index, term in enumerate(terms):
            self.sizes[index, : len(term.sizes)] = [size.at(self.kept) for size in term.sizes]
        self.parts = _parts(terms)
        self.values = self.term_costs(numpy.arange(len(terms)), self.sizes)

    @property
    def total(self) -> float:
        """The total cost."""
        return self.constant + float(self.values.sum())

    def saved(self, group: int, kept: int) -> float:
        """The saving when a group goes from its current width to this one."""
        if group not in self.parts:
            return 0.0
        terms = self.parts[group].terms
        return float(
            self.values[terms].sum() - self.term_costs(terms, self._sizes_at(group, kept)).sum()
        )

    def take(self, group: int, kept: int) -> None:
        """Set the width of a group."""
        if group in self.parts:
            terms = self.parts[group].terms
            self.sizes[terms] = self._sizes_at(group, kept)
            self.values[terms] = self.term_costs(terms, self.sizes[terms])
        self.kept[group] = kept

    def _sizes_at(self, group: int, kept: int) -> Floats:
        part = self.parts[group]
        sizes = self.sizes[part.terms]
        sizes[part.at, part.dims] += part.per_unit * (kept - self.kept[group])
        return sizes

    def _multiplied(self, terms: Indices, sizes: Floats) -> Floats:
        costs: Floats = self.times[terms] * sizes.prod(1)
        return costs


def parameters(model: nn.Module, structure: Structure) -> Cost:
    """The number of parameters as a cost."""
    sizes, rows = Sizes(structure), defaultdict(list)
    for span in structure.spans:
        rows[span.weight].append(numpy.arange(span.start, span.stop))
    terms, constant = [], 0
    for name, weight in model.named_parameters():
        if name in rows:
            terms.append(Term(1.0, tuple(sizes.of(row) for row in rows[name])))
        else:
            constant += weight.numel()
    return Cost(sizes.widths, terms, constant)


def flops(structure: Structure) -> Cost:
    """The FLOPs of convolutions, matrix products and attention; two per multiply-add."""
    sizes = Sizes(structure)
    terms = [
        Term(FLOPS_PER_MAC * product.times, tuple(map(sizes.of, product.sizes)))
        for product in structure.space.products
        if product.times
    ]
    return Cost(sizes.widths, terms)


def spent_flops(structure: Structure, kept: Flags | None = None) -> int:
    """The FLOPs of one call, counting only the channel ids that are kept."""

    def length(row: Row) -> int:
        if isinstance(row, int):
            return row
        return len(row) if kept is None else int(kept[row].sum())

    return sum(
        FLOPS_PER_MAC * product.times * prod(map(length, product.sizes))
        for product in structure.space.products
    )


def _parts(terms: Sequence[Term]) -> dict[int, _Part]:
    occurrences: dict[int, list[tuple[int, int, float]]] = defaultdict(list)
    for index, term in enumerate(terms):
        for dim, size in enumerate(term.sizes):
            for group, share in size.per_unit:
                occurrences[group].append((index, dim, share))
    parts = {}
    for group, entries in occurrences.items():
        terms_of, dims, shares = zip(*entries, strict=True)
        unique, at = numpy.unique(numpy.array(terms_of), return_inverse=True)
        parts[group] = _Part(unique, at, numpy.array(dims), numpy.array(shares))
    return parts
