"""Whether a variant keeps within the limit that its recipe carries, and which layers are to blame
where it does not.
"""

from __future__ import annotations

import copy
from collections import OrderedDict
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import StepError
from ..quantization import QuantizedLayer
from ..recipe import Recipe
from ..records import Measurement
from ..steps import Step
from ..variant import Variant, apply
from ..workload import Workload

MOST_CULPRITS = 3
WORTH = 0.7  # a layer is to blame where the error without its change is this much smaller
NAMES_BESIDE_QAT = {
    "default": "default",
    "layers": "layers",
    "calibration": "calibration",
    "calibration_batches": "batches",
}


def refusal(
    variant: Variant,
    row: Measurement,
    baseline_metric: float | None,
    should_stop: Callable[[], bool] | None = None,
) -> str | None:
    """Why a variant that was measured so is past its limit, and the culprits; None where it is
    within.
    """
    limit = variant.recipe.limit
    if row.metric is not None and baseline_metric is not None:
        name = variant.work.metric_name or "the metric"
        if not (lost := baseline_metric - row.metric) > limit.metric_drop:
            return None
        what = (
            f"{name} falls by {lost:.4f}, from {baseline_metric:.4f} to {row.metric:.4f}, and "
            f"{limit.metric_drop:g} is allowed"
        )
    else:
        if row.relative_error is None or row.relative_error <= limit.output_error:
            return None
        what = (
            f"the answer is {row.relative_error:.1e} away from the baseline's, and "
            f"{limit.output_error:g} is allowed"
        )
    return f"{what}{_blamed(variant, should_stop)}"


def _blamed(variant: Variant, should_stop: Callable[[], bool] | None) -> str:
    """The end of the message: which layers, or else which step."""
    layers, error = culprits(variant, should_stop)
    if layers:
        named = ", ".join(f"'{layer}'" for layer in layers)
        plainly = "rounded without training, " if _is_trained(variant.recipe) else ""
        return f"; {plainly}most of it is {named}: left in fp32, the output error is {error:.1e}"
    errors = [0.0, *(one.relative_error or 0.0 for one in variant.reports)]
    added = {
        one.step: after - before
        for one, before, after in zip(variant.reports, errors, errors[1:], strict=False)
    }
    return f"; step '{max(added, key=lambda step: added[step])}' adds the most" if added else ""


def culprits(
    variant: Variant, should_stop: Callable[[], bool] | None = None
) -> tuple[list[str], float]:
    """The quantized layers that the answer gains most by leaving in fp32, and its error then.

    Found by halving: of the layers still suspected, that half is followed which gains more when it
    is left alone. Nothing is trained for it: where a recipe trains layers while they are rounded,
    they are judged as they are when they are rounded plainly.
    """
    work = _trial(variant.work)
    suspects = [
        name for name, layer in variant.module.named_modules() if isinstance(layer, QuantizedLayer)
    ]
    found: list[str] = []
    recipe = _untrained(variant.recipe)
    apply(work, _before_rounding(recipe))  # where it is kept no more: once for all trials
    error = _error_without(work, recipe, []) if _is_trained(variant.recipe) else _error_of(variant)
    while suspects and len(found) < MOST_CULPRITS:
        part: Sequence[str] = suspects
        while len(part) > 1:
            if should_stop is not None and should_stop():
                return found, error
            half = len(part) // 2
            part = min(
                (part[:half], part[half:]),
                key=lambda some: _error_without(work, recipe, [*found, *some]),
            )
        without = _error_without(work, recipe, [*found, *part])
        if not without < WORTH * error:
            break
        found += part
        error = without
        suspects = [layer for layer in suspects if layer not in found]
    return found, error


def _is_trained(recipe: Recipe) -> bool:
    return any(step.kind == "qat" for step in recipe)


def _untrained(recipe: Recipe) -> Recipe:
    """The same layers in the same formats, by `precision` in place of `qat`."""
    return recipe.of([_plain(step) if step.kind == "qat" else step for step in recipe])


def _before_rounding(recipe: Recipe) -> Recipe:
    kinds = [step.kind for step in recipe]
    return recipe[: kinds.index("precision") if "precision" in kinds else 0]


def _plain(step: Step) -> dict[str, Any]:
    meant = {
        NAMES_BESIDE_QAT[name]: value
        for name, value in step.options.items()
        if name in NAMES_BESIDE_QAT
    }
    return {"precision": {"default": "int8", **meant}}


def _error_of(variant: Variant) -> float:
    return (variant.reports[-1].relative_error or 0.0) if variant.reports else 0.0


def _trial(work: Workload) -> Workload:
    """The workload with a cache of its own that begins with what is kept: what is tried pushes
    nothing out that undo needs, and its models go with it.
    """
    own = copy.copy(work)
    own.variants = OrderedDict(work.variants)
    return own


def _error_without(work: Workload, recipe: Recipe, layers: Sequence[str]) -> float:
    """The output error of the recipe with these layers left in fp32."""
    work = _trial(work)
    left = {"layers": dict.fromkeys(layers, "fp32")}
    steps = [
        step.joined(type(step).model_validate(left))
        if layers and step.kind == "precision"
        else step
        for step in recipe
    ]
    wanted = [step for step in steps if step is not None and not step.is_last]
    try:
        made = apply(work, recipe.of(wanted))
    except StepError:  # nothing is left to quantize
        made = apply(work, recipe.of([step for step in wanted if step.kind != "precision"]))
    return _error_of(made)
