"""The smallest arena for buffers, as a mixed-integer program. Built on scipy.optimize.milp.

Of two buffers alive at once one lies below the other: a binary variable per pair. Minimised is the
height above all of them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from itertools import combinations
from math import gcd

import numpy

from .spans import Span


@dataclass(frozen=True)
class Arena:
    """An address for each buffer, and whether no smaller arena exists."""

    offsets: tuple[int, ...]
    is_proven: bool


def smallest_arena(
    spans: Sequence[Span], *, at_least: int, at_most: int, seconds: float
) -> Arena | None:
    """The smallest arena found in time, between two heights; None if none was found."""
    from scipy.optimize import Bounds, LinearConstraint, milp
    from scipy.sparse import coo_array

    unit = gcd(*(span.size for span in spans))
    sizes = [span.size // unit for span in spans]
    pairs = [(i, j) for i, j in combinations(range(len(spans)), 2) if spans[i].meets(spans[j])]
    count, highest = len(spans), at_most // unit
    rows, columns, values, upper = _rows(sizes, pairs, highest)
    variables = count + 1 + len(pairs)
    matrix = coo_array((values, (rows, columns)), shape=(len(upper), variables))
    ones = [1.0] * len(pairs)
    result = milp(
        numpy.eye(1, variables, count)[0],
        integrality=[0] * (count + 1) + [1] * len(pairs),
        bounds=Bounds(
            [0.0] * count + [at_least / unit] + [0.0] * len(pairs),
            [float(highest - size) for size in sizes] + [float(highest), *ones],
        ),
        constraints=LinearConstraint(matrix.tocsr(), -numpy.inf, upper),
        options={"time_limit": seconds, "mip_rel_gap": 0.0},
    )
    if result.x is None:
        return None
    offsets = _settled(spans, [float(value) for value in result.x[:count]])
    height = max(offset + span.size for offset, span in zip(offsets, spans, strict=True))
    is_optimal = result.status == 0 and height <= unit * round(result.fun)
    return Arena(offsets, is_proven=is_optimal)


def _rows(
    sizes: Sequence[int], pairs: Sequence[tuple[int, int]], highest: int
) -> tuple[list[int], list[int], list[float], list[float]]:
    """The constraints as triples of a sparse matrix, and their upper limits."""
    count = len(sizes)
    entries: list[tuple[int, int, float]] = []
    upper: list[float] = []
    for index, size in enumerate(sizes):  # offset + size ≤ height
        entries += [(len(upper), index, 1.0), (len(upper), count, -1.0)]
        upper.append(float(-size))
    for number, (i, j) in enumerate(pairs, count + 1):
        # i below j where the binary variable is 1, j below i where it is 0
        entries += [(len(upper), i, 1.0), (len(upper), j, -1.0), (len(upper), number, highest)]
        upper.append(float(highest - sizes[i]))
        entries += [(len(upper), j, 1.0), (len(upper), i, -1.0), (len(upper), number, -highest)]
        upper.append(float(-sizes[j]))
    rows, columns, values = (list(column) for column in zip(*entries, strict=True))
    return rows, columns, [float(value) for value in values], upper


def _settled(spans: Sequence[Span], rough: Sequence[float]) -> tuple[int, ...]:
    """Integer addresses in the order of the rough ones: each buffer lies on those below it."""
    offsets: dict[int, int] = {}
    for index in sorted(range(len(spans)), key=lambda index: rough[index]):
        below = (
            offset + spans[other].size
            for other, offset in offsets.items()
            if spans[other].meets(spans[index])
        )
        offsets[index] = max(below, default=0)
    return tuple(offsets[index] for index in range(len(spans)))
