"""The exact costs: the number of parameters and of floating-point operations."""

from __future__ import annotations

from collections import defaultdict
from math import prod

import numpy
from torch import nn

from ..grouping import Flags, Structure
from ..product import Row
from .cost import Cost, Sizes, Term

FLOPS_PER_MAC = 2


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
    """The FLOPs of one call in convolutions, matrix products and attention as a cost, two per
    multiply-add.
    """
    sizes = Sizes(structure)
    terms = [
        Term(FLOPS_PER_MAC * product.times, tuple(map(sizes.of, product.sizes)))
        for product in structure.space.products
        if product.times
    ]
    return Cost(sizes.widths, terms)


def spent_flops(structure: Structure, kept: Flags | None = None) -> int:
    """The FLOPs of one call, counting only the channel ids that are kept, where some are
    removed.
    """

    def length(row: Row) -> int:
        if isinstance(row, int):
            return row
        return len(row) if kept is None else int(kept[row].sum())

    return sum(
        FLOPS_PER_MAC * product.times * prod(map(length, product.sizes))
        for product in structure.space.products
    )
