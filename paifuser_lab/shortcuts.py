"""One line for who wants no more than the usual thing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from torch import nn

from .errors import WorkloadError
from .recipe import Recipe
from .variant import Variant, apply
from .workload import Inputs, Workload


def quantize_model(
    model: nn.Module, data: Iterable[Any], *, precision: str = "int8", layers: Mapping[str, str] | None = None, batches: int = 4
) -> Variant:
    """A copy of a model in whole numbers, ranges found on the first batches of `data` and errors made up for:
    `quantize_model(model, data).model(x)`.

    A batch is what the model is called with, or a pair of that and its target. `layers` chooses other formats by pattern.
    """
    taken = [_as_pair(batch) for batch in islice(data, batches)]
    if not taken:
        raise WorkloadError("quantize_model was given no data; give it at least one batch of what the model is called with.")
    work = Workload(model, Inputs.of(taken[0][0]), train=taken)
    options = {"default": precision, "layers": dict(layers or {}), "batches": batches, "compensate": ["rounding", "bias"]}
    return apply(work, Recipe([{"precision": options}]))


def _as_pair(batch: Any) -> tuple[Any, Any]:
    is_pair = isinstance(batch, tuple | list) and len(batch) == 2
    return (batch[0], batch[1]) if is_pair else (batch, None)
