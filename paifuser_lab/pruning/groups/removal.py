"""Remove units from a model, or only set the weights that produce them to zero; both must give the
same output.
"""

from __future__ import annotations

from collections.abc import Iterable

import numpy
import torch
from torch import Tensor, nn

from .grouping import Structure
from .width_attributes import follow


def cut(
    model: nn.Module, structure: Structure, removed: set[int], left_alone: Iterable[str] = ()
) -> None:
    """Remove the units from every weight, and update the width attributes of the layers."""
    kept = structure.kept(removed)
    weights = dict((*model.named_parameters(), *model.named_buffers()))
    with torch.no_grad():
        for span in structure.spans:
            stays = kept[span.start : span.stop]
            if span.weight and not stays.all():
                shorten(
                    weights[span.weight], span.dimension, torch.from_numpy(numpy.flatnonzero(stays))
                )
    follow(model, structure, kept, frozenset(left_alone))


def mask(model: nn.Module, structure: Structure, removed: set[int]) -> None:
    """Set the rows that produce the units to zero, including biases and norms."""
    kept = structure.kept(removed)
    weights = dict((*model.named_parameters(), *model.named_buffers()))
    rows = {
        (member.weight, member.dimension)
        for group in structure.groups
        for member in group.members
        if member.kind == "rows"
    }
    with torch.no_grad():
        for span in structure.spans:
            stays = kept[span.start : span.stop]
            is_mean = span.weight.endswith("running_mean")
            if not stays.all() and (is_mean or (span.weight, span.dimension) in rows):
                removed_positions = torch.from_numpy(numpy.flatnonzero(~stays)).to(
                    weights[span.weight].device
                )
                weights[span.weight].index_fill_(span.dimension, removed_positions, 0)


def shorten(weight: Tensor, dim: int, positions: Tensor) -> None:
    """Keep these positions of a weight along one dimension; in place, so that ties and other
    references to the weight stay valid.
    """
    weight.data = weight.data.index_select(dim, positions.to(weight.device))
    weight.grad = None
