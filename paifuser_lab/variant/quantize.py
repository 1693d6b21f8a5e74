"""Quantizes a model with the usual options in one call."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from torch import Tensor, nn

from ..errors import StepError, WorkloadError
from ..model.copying import copied
from ..model.formats import WEIGHTS_ONLY
from ..model.layers import channel_of
from ..records import StepReport
from ..steps import Draft
from ..steps.precision import Precision
from ..workload import UNSEEN, Inputs, Workload
from .apply_recipe import apply
from .recipe import Recipe
from .variant import Variant

NO_DATA = "quantize_model was given no data: nothing was checked by running it"
WEIGHTS_ALONE = (
    "quantize_model was given no data: weights alone are rounded, the model computes as before and "
    "nothing was checked by running it; for int8 that is faster give batches: "
    "quantize_model(model, data)"
)


def quantize_model(
    model: nn.Module,
    data: Iterable[Any] | None = None,
    *,
    precision: str | None = None,
    layers: Mapping[str, str] | None = None,
    batches: int = 4,
) -> Variant:
    """A quantized copy of a model: in int8, with ranges calibrated on the first batches of `data`
    and compensated errors, or, without data, with int8 weights: `quantize_model(model).model(x)`.

    A batch is the model's input, or a pair of input and target. `layers` sets other formats by
    pattern. A bare layer, such as an `nn.Linear`, becomes the one layer of an `nn.Sequential`.
    """
    if not isinstance(model, nn.Module):
        raise WorkloadError(
            f"quantize_model takes a torch.nn.Module and batches of data, not a "
            f"{type(model).__name__}; of a workload give both: quantize_model(work.model, "
            "work.train)."
        )
    name = type(model).__name__
    if channel_of(model) is not None:  # a layer is rounded inside a model
        model = nn.Sequential(model)
    if data is None:
        return _without_data(
            model, name, {"default": precision or "int8-weights", "layers": dict(layers or {})}
        )
    _check_batches(data)
    pairs = [_as_pair(batch) for batch in islice(data, batches)]
    if not pairs:
        raise WorkloadError(
            "quantize_model was given no data; give it at least one batch of what the model is "
            "called with."
        )
    work = Workload(model, Inputs.of(pairs[0][0]), name=name, train=pairs)
    options: dict[str, Any] = {
        "default": precision or "int8",
        "layers": dict(layers or {}),
        "batches": batches,
    }
    if any(
        str(name).startswith("int") for name in (options["default"], *options["layers"].values())
    ):
        options["compensate"] = ["rounding", "bias"]
    return apply(work, Recipe([{"precision": options}]))


def _without_data(model: nn.Module, name: str, options: Mapping[str, Any]) -> Variant:
    """Without data nothing is run, so ranges and the error are unknown."""
    recipe, began = Recipe([{"precision": dict(options)}]), time.perf_counter()
    step, work = recipe.steps[0], Workload(model, UNSEEN, name=name)
    assert isinstance(step, Precision)
    try:
        draft = Draft(work, copied(model).eval())
        step.apply_unseen(draft)
    except StepError as problem:
        raise StepError(
            f"quantize_model without data cannot quantize {work.name}: {str(problem).rstrip('.')}."
        ) from problem
    formats = {step.default, *step.layers.values()} - {None, "fp32"}
    said = WEIGHTS_ALONE if all(WEIGHTS_ONLY.fullmatch(str(each)) for each in formats) else NO_DATA
    warnings.warn(said, stacklevel=3)
    notes, seconds = (*draft.notes, said), time.perf_counter() - began
    report = StepReport(step=step.label, seconds=seconds, relative_error=None, notes=notes)
    return Variant(
        work, recipe, draft.module, draft.model, draft.threads, (report,), (draft.remembered,)
    )


def _check_batches(data: Any) -> None:
    """Refuse one batch in place of several: its examples would be taken for batches."""
    is_pair = isinstance(data, tuple) and len(data) == 2
    if isinstance(data, Tensor | Mapping | str) or is_pair or not isinstance(data, Iterable):
        what = "a pair" if is_pair else f"of type {type(data).__name__}"
        raise WorkloadError(
            f"quantize_model takes batches of data, and this is {what}; give a list, such as "
            "[inputs] or [(inputs, target)], or a DataLoader."
        )


def _as_pair(batch: Any) -> tuple[Any, Any]:
    is_pair = isinstance(batch, tuple | list) and len(batch) == 2
    return (batch[0], batch[1]) if is_pair else (batch, None)
