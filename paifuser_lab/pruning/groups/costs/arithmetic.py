"""The sums that are known exactly: how many parameters there are, and how many floating-point
operations are done.
"""

from __future__ import annotations

from collections import defaultdict
from math import prod

import numpy
from torch import nn

from ..grouping import Flags, Structure
from ..product import Row
from .cost import Cost, Sizes, Term

FLOPS_OF_MULTIPLY_ADD = 2


def parameters(model: nn.Module, structure: Structure) -> Cost:
    """How many numbers the parameters have."""
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
    """How many operations one call does in convolutions, matrix products and attention, two a
    multiply-add.
    """
    sizes = Sizes(structure)
    terms = [
        Term(FLOPS_OF_MULTIPLY_ADD * one.times, tuple(map(sizes.of, one.sizes)))
        for one in structure.space.multiplied
        if one.times
    ]
    return Cost(sizes.widths, terms)


def spent_flops(structure: Structure, kept: Flags | None = None) -> int:
    """The operations of one call; only of the channel ids that are kept, where some are removed."""

    def length(row: Row) -> int:
        if isinstance(row, int):
            return row
        return len(row) if kept is None else int(kept[row].sum())

    return sum(
        FLOPS_OF_MULTIPLY_ADD * one.times * prod(map(length, one.sizes))
        for one in structure.space.multiplied
    )
