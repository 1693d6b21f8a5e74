"""One line for who wants no more than the usual thing."""

from __future__ import annotations

import time
import warnings
from collections.abc import Iterable, Mapping
from itertools import islice
from typing import Any

from torch import nn

from ..errors import StepError, WorkloadError
from ..model.copying import copied
from ..recipe import Recipe
from ..records import StepReport
from ..steps import Draft
from ..steps.precision import Precision
from ..workload import Inputs, Workload
from .apply_recipe import apply
from .variant import Variant

WEIGHTS_ALONE = (
    "quantize_model was given no data: weights alone are rounded, the model computes as before and "
    "nothing was checked by "
    "running it; for int8 that is faster give batches: quantize_model(model, data)"
)


def quantize_model(
    model: nn.Module,
    data: Iterable[Any] | None = None,
    *,
    precision: str | None = None,
    layers: Mapping[str, str] | None = None,
    batches: int = 4,
) -> Variant:
    """A quantized copy of a model: in int8, ranges found on the first batches of `data` and errors
    made up for, or, without data, with its weights alone in int8: `quantize_model(model).model(x)`.

    A batch is what the model is called with, or a pair of that and its target. `layers` chooses
    other formats by pattern.
    """
    if data is None:
        return _weights_alone(
            model, {"default": precision or "int8-weights", "layers": dict(layers or {})}
        )
    taken = [_as_pair(batch) for batch in islice(data, batches)]
    if not taken:
        raise WorkloadError(
            "quantize_model was given no data; give it at least one batch of what the model is "
            "called with."
        )
    work = Workload(model, Inputs.of(taken[0][0]), train=taken)
    options = {
        "default": precision or "int8",
        "layers": dict(layers or {}),
        "batches": batches,
        "compensate": ["rounding", "bias"],
    }
    return apply(work, Recipe([{"precision": options}]))


def _weights_alone(model: nn.Module, options: Mapping[str, Any]) -> Variant:
    """Without data a model cannot be run: weights are rounded, and neither ranges nor the error of
    the answer are known.
    """
    recipe, began = Recipe([{"precision": dict(options)}]), time.perf_counter()
    step, work = recipe.steps[0], Workload(model, Inputs())
    assert isinstance(step, Precision)
    try:
        draft = Draft(work, copied(model).eval())
        step.apply_unseen(draft)
    except StepError as problem:
        raise StepError(
            f"quantize_model without data cannot quantize {work.name}: {str(problem).rstrip('.')}."
        ) from problem
    warnings.warn(WEIGHTS_ALONE, stacklevel=3)
    notes, seconds = (*draft.notes, WEIGHTS_ALONE), time.perf_counter() - began
    report = StepReport(step=step.label, seconds=seconds, relative_error=None, notes=notes)
    return Variant(
        work, recipe, draft.module, draft.model, draft.threads, (report,), (draft.remembered,)
    )


def _as_pair(batch: Any) -> tuple[Any, Any]:
    is_pair = isinstance(batch, tuple | list) and len(batch) == 2
    return (batch[0], batch[1]) if is_pair else (batch, None)
