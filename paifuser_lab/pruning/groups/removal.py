"""Remove units from a model, or only set the weights that produce them to zero: both must give the
same output. A cut is recorded as plain data, and repeated on a fresh model without tracing it.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from ...errors import StepError
from .grouping import Structure
from .width_attributes import follow, follow_shapes

Attributes = dict[str, dict[str, Any]]  # by layer: its integer attributes


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
    """Keep these positions along a dimension, in place, so that ties and references stay valid."""
    weight.data = weight.data.index_select(dim, positions.to(weight.device))
    weight.grad = None


def cut_and_remember(
    model: nn.Module, structure: Structure, removed: set[int], left_alone: Iterable[str] = ()
) -> dict[str, Any]:
    """Cut, and return the positions removed of each weight and the attributes that changed."""
    goes = ~structure.kept(removed)
    weights = [
        {
            "weight": span.weight,
            "dimension": span.dimension,
            "of": span.stop - span.start,
            "removed": _as_text(gone),
        }
        for span in structure.spans
        if span.weight and (gone := goes[span.start : span.stop].nonzero()[0].tolist())
    ]
    before = _attributes(model)
    cut(model, structure, removed, left_alone)
    after = _attributes(model)
    changed = {
        layer: {key: now for key, now in own.items() if before[layer].get(key) != now}
        for layer, own in after.items()
    }
    return {"weights": weights, "attributes": {layer: own for layer, own in changed.items() if own}}


def cut_again(model: nn.Module, record: dict[str, Any]) -> None:
    """Repeat the recorded cut on a model of the same code."""
    weights = dict((*model.named_parameters(), *model.named_buffers()))
    with torch.no_grad():
        for removal in record["weights"]:
            _shorten(weights.get(removal["weight"]), removal)
    follow_shapes(model)
    modules = dict(model.named_modules())
    for layer, own in record["attributes"].items():
        for key, value in own.items():
            old = vars(modules[layer]).get(key) if layer in modules else None
            if old is None or not _is_number(old):
                raise StepError(
                    f"layer '{layer}' has no integer attribute '{key}', which the cut changed "
                    "in the saved model"
                )
            setattr(modules[layer], key, type(old)(value))


def _shorten(weight: Tensor | None, removal: dict[str, Any]) -> None:
    dim, size = removal["dimension"], removal["of"]
    if weight is None:
        raise StepError(
            f"there is no weight '{removal['weight']}', which was cut in the model that was saved"
        )
    if weight.ndim <= dim or weight.shape[dim] != size:
        raise StepError(
            f"'{removal['weight']}' has shape {tuple(weight.shape)}; before it was cut, dimension "
            f"{dim} of what was saved had {size}"
        )
    removed = set(_from_text(removal["removed"]))
    shorten(
        weight,
        dim,
        torch.tensor(
            [position for position in range(size) if position not in removed], dtype=torch.int64
        ),
    )


def _attributes(model: nn.Module) -> Attributes:
    """The integer attributes, and lists of integers, of each layer."""
    return {
        name: {
            key: list(value) if isinstance(value, tuple) else value
            for key, value in vars(module).items()
            if key != "training" and _is_number(value)
        }
        for name, module in model.named_modules()
    }


def _is_number(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(type(item) is int for item in value)
    return type(value) in (int, bool)


def _as_text(positions: list[int]) -> str:
    """Rising positions as text: '0-3,7'."""
    breaks = numpy.flatnonzero(numpy.diff(positions) != 1) + 1
    runs = [run.tolist() for run in numpy.split(numpy.asarray(positions), breaks)]
    return ",".join(f"{run[0]}-{run[-1]}" if len(run) > 1 else f"{run[0]}" for run in runs)


def _from_text(text: str) -> list[int]:
    edges = [[int(edge) for edge in part.split("-")] for part in text.split(",")]
    return [position for part in edges for position in range(part[0], part[-1] + 1)]
