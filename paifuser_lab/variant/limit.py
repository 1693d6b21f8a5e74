"""Check a variant against its recipe's quality limit, and find the layers that break it."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import Any

from ..errors import PaifuserError, StepError, StoppedError
from ..quantization import QuantizedLayer
from ..records import Measurement
from ..steps import Step
from ..steps.training_step import TrainingStep
from ..workload import Workload
from . import Variant, apply, kept_variant
from .recipe import Recipe

MAX_CULPRITS = 3
MAX_ERROR_RATIO = 0.7  # a culprit left in fp32 brings the error below this part of it
PRECISION_OPTIONS = {
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
    """Why a variant with this measurement exceeds its limit, with the culprits; None within it."""
    limit = variant.recipe.limit
    if row.metric is not None and baseline_metric is not None:
        name = variant.work.metric_name or "the metric"
        if math.isnan(baseline_metric):
            return f"{name} of the unchanged model is nan, which judges nothing; correct it"
        lost = variant.work.metric_lost(baseline_metric, row.metric)
        if lost <= limit.metric_drop:  # not so of NaN
            return None
        verb = "rises" if variant.work.smaller_is_better else "falls"
        excess = (
            f"{name} {verb} by {abs(lost):.4f}, from {baseline_metric:.4f} to {row.metric:.4f}, "
            f"and {limit.metric_drop:g} is allowed"
        )
    else:
        if row.relative_error is None or row.relative_error <= limit.output_error:
            return None
        excess = (
            f"the output differs from the baseline's by {row.relative_error:.1e}, and "
            f"{limit.output_error:g} is allowed"
        )
    return f"{excess}{_blamed(variant, should_stop)}"


def _blamed(variant: Variant, should_stop: Callable[[], bool] | None) -> str:
    """The end of the message: the layers at fault, or else the step."""
    try:
        layers, error = culprits(variant, should_stop)
    except StoppedError:
        raise
    except PaifuserError:  # a step before the rounding cannot be applied again
        layers, error = [], 0.0
    if layers:
        names = ", ".join(f"'{layer}'" for layer in layers)
        rounding = "rounded without training, " if _is_trained(variant.recipe) else ""
        return f"; {rounding}most of it is {names}: left in fp32, the output error is {error:.1e}"
    errors = [0.0, *(report.relative_error or 0.0 for report in variant.reports)]
    added = {
        report.step: after - before
        for report, before, after in zip(variant.reports, errors, errors[1:], strict=False)
    }
    return f"; step '{max(added, key=lambda step: added[step])}' adds the most" if added else ""


def culprits(
    variant: Variant, should_stop: Callable[[], bool] | None = None
) -> tuple[list[str], float]:
    """The quantized layers whose return to fp32 lowers the output error most, and that error.

    Found by bisection: of the remaining layers, the half whose return to fp32 leaves the smaller
    error is searched further. Nothing is trained: quantization-aware training is replaced by plain
    rounding to the same formats, and no layer is found where the model before the rounding would
    have to be trained again, as after a folder was loaded.
    """
    work = _trial(variant.work)
    suspects = [
        name for name, layer in variant.module.named_modules() if isinstance(layer, QuantizedLayer)
    ]
    worst: list[str] = []
    # the same layers in the same formats, by `precision` in place of `qat`
    recipe = variant.recipe.of(
        [_as_precision(step) if step.kind == "qat" else step for step in variant.recipe]
    )
    kinds = [step.kind for step in recipe]
    before = recipe[: kinds.index("precision") if "precision" in kinds else 0]
    trained = [count for count, step in enumerate(before, 1) if isinstance(step, TrainingStep)]
    if trained and not any(
        kept_variant(work, before[:count]) for count in range(trained[-1], len(before) + 1)
    ):
        return [], _error_of(variant)
    # The model before rounding may have left the cache: rebuild it once for all trials.
    apply(work, before)
    error = _error_without(work, recipe, []) if _is_trained(variant.recipe) else _error_of(variant)
    while suspects and len(worst) < MAX_CULPRITS:
        part: Sequence[str] = suspects
        while len(part) > 1:
            if should_stop is not None and should_stop():
                return worst, error
            half = len(part) // 2
            part = min(
                (part[:half], part[half:]),
                key=lambda layers: _error_without(work, recipe, [*worst, *layers]),
            )
        without = _error_without(work, recipe, [*worst, *part])
        if not without < MAX_ERROR_RATIO * error:
            break
        worst += part
        error = without
        suspects = [layer for layer in suspects if layer not in worst]
    return worst, error


def _is_trained(recipe: Recipe) -> bool:
    return any(step.kind == "qat" for step in recipe)


def _as_precision(step: Step) -> dict[str, Any]:
    options = {
        PRECISION_OPTIONS[name]: value
        for name, value in step.options.items()
        if name in PRECISION_OPTIONS
    }
    return {"precision": {"default": "int8", **options}}


def _error_of(variant: Variant) -> float:
    return (variant.reports[-1].relative_error or 0.0) if variant.reports else 0.0


def _trial(work: Workload) -> Workload:
    """The workload for trials, which begin from what is cached."""
    trial = work.for_trials()
    trial.variants.update(work.variants)
    return trial


def _error_without(work: Workload, recipe: Recipe, layers: Sequence[str]) -> float:
    """The output error of the recipe with these layers left in fp32."""
    work = _trial(work)
    in_fp32 = {"layers": dict.fromkeys(layers, "fp32")}
    changed = [
        step.joined(type(step).model_validate(in_fp32))
        if layers and step.kind == "precision"
        else step
        for step in recipe
    ]
    steps = [step for step in changed if step is not None and not step.is_last]
    try:
        variant = apply(work, recipe.of(steps))
    except StepError:  # nothing is left to quantize
        variant = apply(work, recipe.of([step for step in steps if step.kind != "precision"]))
    return _error_of(variant)
