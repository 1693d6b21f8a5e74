"""What a model takes by the widths of its groups: its layers by their staircases, the rest by what
the whole takes, wide and narrow.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy

from ...records import Staircase, WholeLatency
from ..groups import Structure
from ..groups.costs import Cost, Size, Sizes, Term
from ..groups.costs.cost import Floats, Places
from .layer_families import Family, family_of, full_width
from .measure import Key, key_of

REST = -1  # in the place of a staircase: what is not timed by itself


@dataclass(frozen=True)
class Latency:
    """The cost in ms, and how much of it the layers and the rest are at full width."""

    cost: Cost
    layers_ms: float
    rest_ms: float


def families_of(structure: Structure) -> list[Family]:
    """Every layer that is timed by itself."""
    return [family for one in structure.space.multiplied if (family := family_of(one)) is not None]


def latency_cost(
    structure: Structure, found: Mapping[Key, Staircase], whole: WholeLatency, narrow: Sequence[int]
) -> Latency:
    """What the model takes; `narrow` are the widths at which the whole took `narrow_ms`.

    The rest falls with the values that layers make, from what it is at full width to what it is at
    the narrow one.
    """
    sizes, stairs = Sizes(structure), {key: _Stairs(row) for key, row in found.items()}
    layers, made = _layers(structure, sizes, list(stairs)), _made(structure, sizes)
    climbed = list(stairs.values())
    alone_ms, alone_narrow_ms = (
        _total(widths, layers, climbed) for widths in (sizes.widths, narrow)
    )
    values, narrow_values = (_total(widths, made, []) for widths in (sizes.widths, narrow))
    scale = (
        min(1.0, whole.ms / alone_ms) if alone_ms else 1.0
    )  # what a model does in one, such as a recurrence, takes less
    rest_ms = whole.ms - scale * alone_ms
    falls_ms = rest_ms
    if whole.narrow_ms is not None and values > narrow_values:
        rest_narrow_ms = max(0.0, whole.narrow_ms - scale * alone_narrow_ms)
        falls_ms = min(
            rest_ms, max(0.0, rest_ms - rest_narrow_ms) * values / (values - narrow_values)
        )
    every = _scaled(layers, scale) + _scaled(made, falls_ms / values if values else 0.0)
    return Latency(
        _cost(sizes.widths, every, climbed, rest_ms - falls_ms), scale * alone_ms, rest_ms
    )


_Timed = tuple[int, Term]  # the staircase, by number, or REST; the term's `times` is how often


def _layers(structure: Structure, sizes: Sizes, keys: Sequence[Key]) -> list[_Timed]:
    numbers = {key: number for number, key in enumerate(keys)}
    counted: Counter[tuple[int, tuple[Size, ...]]] = Counter()
    for family in families_of(structure):
        beside = sizes.of(family.beside)
        share = Size(
            beside.stays / full_width(family.beside), _divided(beside, full_width(family.beside))
        )
        reads = Size(1.0) if family.reads is None else sizes.of(family.reads)
        counted[numbers[key_of(family)], (reads, sizes.of(family.makes), share)] += 1
    return [(number, Term(times, lengths)) for (number, lengths), times in counted.items()]


def _made(structure: Structure, sizes: Sizes) -> list[_Timed]:
    counted: Counter[tuple[Size, ...]] = Counter()
    for one in structure.space.multiplied:
        counted[tuple(map(sizes.of, one.made))] += one.made_times
    return [(REST, Term(times, lengths)) for lengths, times in counted.items() if times]


def _divided(size: Size, by: float) -> tuple[tuple[int, float], ...]:
    return tuple((group, share / by) for group, share in size.per_unit)


def _scaled(timed: list[_Timed], scale: float) -> list[_Timed]:
    return [(number, Term(term.times * scale, term.sizes)) for number, term in timed]


def _cost(
    widths: Sequence[int], timed: list[_Timed], stairs: Sequence[_Stairs], constant: float = 0.0
) -> Cost:
    return Cost(widths, [term for _, term in timed], constant, _Valued(timed, stairs))


def _total(widths: Sequence[int], timed: list[_Timed], stairs: Sequence[_Stairs]) -> float:
    return _cost(widths, timed, stairs).total


class _Valued:
    """What each term takes: by its staircase, or what its sizes multiply to."""

    def __init__(self, timed: list[_Timed], stairs: Sequence[_Stairs]) -> None:
        self.numbers = numpy.array([number for number, _ in timed], dtype=numpy.int64)
        self.times = numpy.array([term.times for _, term in timed], dtype=numpy.float64)
        self.stairs = stairs

    def __call__(self, terms: Places, sizes: Floats) -> Floats:
        numbers, found = self.numbers[terms], self.times[terms].copy()
        for number in numpy.unique(numbers).tolist():
            here = numbers == number
            found[here] *= (
                sizes[here].prod(1) if number == REST else self.stairs[number].at(sizes[here])
            )
        return found


class _Stairs:
    """A staircase between its widths: on straight lines, and never more for fewer channels, since
    nobody would keep those.
    """

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
        """The ms at each row of sizes: channels read, channels made, and the share of a product's
        rows.
        """
        low, up, to_up = _between(self.reads, sizes[:, 0])
        left, right, to_right = _between(self.makes, sizes[:, 1])
        narrow = self.ms[low, left] * (1 - to_right) + self.ms[low, right] * to_right
        wide = self.ms[up, left] * (1 - to_right) + self.ms[up, right] * to_right
        found: Floats = (narrow * (1 - to_up) + wide * to_up) * sizes[:, 2]
        return found


def _between(widths: Floats, wanted: Floats) -> tuple[Places, Places, Floats]:
    """The measured widths on both sides of the wanted ones, and how far these are from the lower to
    the upper.
    """
    upper = numpy.searchsorted(widths, wanted).clip(0, len(widths) - 1)
    lower = (upper - 1).clip(0)
    gap = widths[upper] - widths[lower]
    way = numpy.divide(wanted - widths[lower], gap, out=numpy.ones(len(wanted)), where=gap > 0)
    return lower, upper, way.clip(0, 1)
