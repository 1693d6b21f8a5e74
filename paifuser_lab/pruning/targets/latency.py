"""A model's latency by its groups' widths: layers by staircases, the rest by the whole model."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

import numpy

from ...records import Staircase, WholeLatency
from ..groups import Structure
from ..groups.costs import Cost, Floats, Indices, Size, Sizes, Term
from .layer_families import Family, family_of, full_width
from .measure import Key, key_of

REST = -1  # instead of a staircase's index: the part that is not timed by itself


def families_of(structure: Structure) -> list[Family]:
    """The family of every layer that is timed by itself."""
    return [
        family for product in structure.space.products if (family := family_of(product)) is not None
    ]


def latency_cost(
    structure: Structure,
    staircases: Mapping[Key, Staircase],
    whole: WholeLatency,
    narrow: Sequence[int],
) -> tuple[Cost, float]:
    """The model's latency in ms by widths, and what its layers take of it at full width; `narrow`
    are the widths at which the whole model took `narrow_ms`.

    The rest is proportional to the number of output values of the layers, between its time at full
    width and at the narrow one.
    """
    sizes, stairs = Sizes(structure), {key: _Stairs(row) for key, row in staircases.items()}
    layers, outputs = _layers(structure, sizes, list(stairs)), _outputs(structure, sizes)
    all_stairs = list(stairs.values())
    alone_ms, alone_narrow_ms = (
        _total(widths, layers, all_stairs) for widths in (sizes.widths, narrow)
    )
    values, narrow_values = (_total(widths, outputs, []) for widths in (sizes.widths, narrow))
    # operators that the model fuses, such as a recurrence, take less than alone
    scale = min(1.0, whole.ms / alone_ms) if alone_ms else 1.0
    rest_ms = whole.ms - scale * alone_ms
    width_ms = rest_ms
    if whole.narrow_ms is not None and values > narrow_values:
        rest_narrow_ms = max(0.0, whole.narrow_ms - scale * alone_narrow_ms)
        width_ms = min(
            rest_ms, max(0.0, rest_ms - rest_narrow_ms) * values / (values - narrow_values)
        )
    terms = _scaled(layers, scale) + _scaled(outputs, width_ms / values if values else 0.0)
    return _cost(sizes.widths, terms, all_stairs, rest_ms - width_ms), scale * alone_ms


_Timed = tuple[int, Term]  # the staircase's index or REST; the term's `times` counts the calls


def _layers(structure: Structure, sizes: Sizes, keys: Sequence[Key]) -> list[_Timed]:
    indices = {key: number for number, key in enumerate(keys)}
    counted: Counter[tuple[int, tuple[Size, ...]]] = Counter()
    for family in families_of(structure):
        beside, full = sizes.of(family.beside), full_width(family.beside)
        per_unit = tuple((group, rows / full) for group, rows in beside.per_unit)
        share = Size(beside.stays / full, per_unit)
        reads = Size(1.0) if family.reads is None else sizes.of(family.reads)
        counted[indices[key_of(family)], (reads, sizes.of(family.makes), share)] += 1
    return [(number, Term(times, lengths)) for (number, lengths), times in counted.items()]


def _outputs(structure: Structure, sizes: Sizes) -> list[_Timed]:
    counted: Counter[tuple[Size, ...]] = Counter()
    for product in structure.space.products:
        counted[tuple(map(sizes.of, product.output_sizes))] += product.output_times
    return [(REST, Term(times, lengths)) for lengths, times in counted.items() if times]


def _scaled(timed: list[_Timed], scale: float) -> list[_Timed]:
    return [(number, Term(term.times * scale, term.sizes)) for number, term in timed]


def _cost(
    widths: Sequence[int], timed: list[_Timed], stairs: Sequence[_Stairs], constant: float = 0.0
) -> Cost:
    return Cost(widths, [term for _, term in timed], constant, _TermCosts(timed, stairs))


def _total(widths: Sequence[int], timed: list[_Timed], stairs: Sequence[_Stairs]) -> float:
    return _cost(widths, timed, stairs).total


class _TermCosts:
    """The cost of each term: by its staircase, or the product of its sizes."""

    def __init__(self, timed: list[_Timed], stairs: Sequence[_Stairs]) -> None:
        self.numbers = numpy.array([number for number, _ in timed], dtype=numpy.int64)
        self.times = numpy.array([term.times for _, term in timed], dtype=numpy.float64)
        self.stairs = stairs

    def __call__(self, terms: Indices, sizes: Floats) -> Floats:
        numbers, costs = self.numbers[terms], self.times[terms].copy()
        for number in numpy.unique(numbers).tolist():
            is_own = numbers == number
            costs[is_own] *= (
                sizes[is_own].prod(1) if number == REST else self.stairs[number].at(sizes[is_own])
            )
        return costs


class _Stairs:
    """A staircase interpolated linearly, and never slower with fewer channels."""

    def __init__(self, row: Staircase) -> None:
        ms = numpy.array(row.ms)
        for axis in (0, 1):
            ms = numpy.flip(numpy.minimum.accumulate(numpy.flip(ms, axis), axis), axis)
        self.reads, self.makes, self.ms = (
            numpy.array(row.reads, float),
            numpy.array(row.makes, float),
            ms,
        )

    def at(self, sizes: Floats) -> Floats:
        """The ms by input channels, output channels and share of a product's rows."""
        low, up, to_up = _between(self.reads, sizes[:, 0])
        left, right, to_right = _between(self.makes, sizes[:, 1])
        narrow = self.ms[low, left] * (1 - to_right) + self.ms[low, right] * to_right
        wide = self.ms[up, left] * (1 - to_right) + self.ms[up, right] * to_right
        ms: Floats = (narrow * (1 - to_up) + wide * to_up) * sizes[:, 2]
        return ms


def _between(widths: Floats, requested: Floats) -> tuple[Indices, Indices, Floats]:
    """The measured widths on both sides of the requested ones, and the position of these between
    the lower and the upper, from 0 to 1.
    """
    upper = numpy.searchsorted(widths, requested).clip(0, len(widths) - 1)
    lower = (upper - 1).clip(0)
    gap = widths[upper] - widths[lower]
    position = numpy.divide(
        requested - widths[lower], gap, out=numpy.ones(len(requested)), where=gap > 0
    )
    return lower, upper, position.clip(0, 1)
