"""What a cut took from a model, as plain data, and the same cut of a fresh model: nothing is run,
traced or chosen again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import StepError
from .grouping import Structure
from .removal import cut, shorten
from .width_attributes import follow_shapes

Attributes = dict[str, dict[str, Any]]  # of each layer: the numbers that it keeps


def cut_and_remember(
    model: nn.Module, structure: Structure, removed: set[int], left_alone: Iterable[str] = ()
) -> dict[str, Any]:
    """Cut, and give what was taken: the places of each weight, and the numbers about their width
    that layers then had.
    """
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
    """Take the same from a model of the same code."""
    weights = dict((*model.named_parameters(), *model.named_buffers()))
    with torch.no_grad():
        for one in record["weights"]:
            _shorten(weights.get(one["weight"]), one)
    follow_shapes(model)
    modules = dict(model.named_modules())
    for layer, own in record["attributes"].items():
        for key, value in own.items():
            old = vars(modules[layer]).get(key) if layer in modules else None
            if old is None or not _is_number(old):
                raise StepError(
                    f"layer '{layer}' keeps no number '{key}', which the cut had changed in the "
                    "model that was saved"
                )
            setattr(modules[layer], key, type(old)(value))


def _shorten(weight: Tensor | None, one: dict[str, Any]) -> None:
    dim, of = one["dimension"], one["of"]
    if weight is None:
        raise StepError(
            f"there is no weight '{one['weight']}', which was cut in the model that was saved"
        )
    if weight.ndim <= dim or weight.shape[dim] != of:
        raise StepError(
            f"'{one['weight']}' has shape {tuple(weight.shape)}; before it was cut, dimension "
            f"{dim} of what was saved had {of}"
        )
    gone = set(_from_text(one["removed"]))
    shorten(
        weight,
        dim,
        torch.tensor([place for place in range(of) if place not in gone], dtype=torch.int64),
    )


def _attributes(model: nn.Module) -> Attributes:
    """The numbers, and rows of numbers, that each layer keeps."""
    return {
        name: {
            key: _plain(value)
            for key, value in vars(module).items()
            if key != "training" and _is_number(value)
        }
        for name, module in model.named_modules()
    }


def _is_number(value: Any) -> bool:
    if isinstance(value, list | tuple):
        return type(value) in (list, tuple) and all(type(one) is int for one in value)
    return type(value) in (int, bool)


def _plain(value: Any) -> Any:
    return list(value) if isinstance(value, tuple) else value


def _as_text(places: list[int]) -> str:
    """Rising places in few words: '0-3,7'."""
    starts = [one for index, one in enumerate(places) if not index or places[index - 1] != one - 1]
    ends = [
        one
        for index, one in enumerate(places)
        if index + 1 == len(places) or places[index + 1] != one + 1
    ]
    return ",".join(
        f"{low}-{high}" if high > low else f"{low}" for low, high in zip(starts, ends, strict=True)
    )


def _from_text(text: str) -> list[int]:
    edges = [[int(edge) for edge in part.split("-")] for part in text.split(",")]
    return [place for part in edges for place in range(part[0], part[-1] + 1)]
