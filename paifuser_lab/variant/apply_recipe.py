"""Apply a recipe to a copy of a workload's model; the user's own model is never changed.

Each step works on a copy of the previous step's result, is checked on the example inputs, and is
discarded if it fails. The results of a recipe's first steps are cached, so that undo, redo and
longer recipes are fast.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import torch
from torch import nn

from ..engines import Engine
from ..engines.threads import faster_threads
from ..errors import MeasureError, PaifuserError, StepError, StoppedError, first_line
from ..machine import threads
from ..measure import output_error
from ..model.watch import not_finite
from ..progress import progress
from ..quantization import QuantizedLayer
from ..quantization.float_formats import computes_in_16_bits
from ..quantization.quantize import UNREDUCED, range_notes
from ..records import StepReport
from ..steps import Draft, Step
from ..workload import Workload, outside_inference, running, workload_of
from .cache import keep, longest_cached, prefix_keys
from .recipe import Recipe, checked_recipe
from .variant import Variant, model_copy

INT8_TOLERANCE = 0.05  # rounding to integers amplifies differences in the last bit before it
HALF_TOLERANCE = 0.1  # the tolerance of an exact step if the draft already computes in 16 bits


@outside_inference
def apply(
    work: Workload, recipe: Recipe, *, should_stop: Callable[[], bool] | None = None
) -> Variant:
    """Create a variant: a copy of the workload's model with every step of the recipe applied and
    checked. If a step fails, an error is raised and nothing is changed.

    Slow steps poll `should_stop` and raise StoppedError; applied again, the recipe resumes from
    the steps that are done.
    """
    work, recipe = workload_of(work), checked_recipe(recipe)
    if recipe.steps and isinstance(work.model, Engine) and type(work.model) is not Engine:
        raise StepError(
            f"{work.name} runs in {work.model.title}, and no step can follow an engine; apply the "
            "steps to the original, with 'backend' last."
        )
    reference = work.output()
    keys = prefix_keys(work, recipe, reference)
    done, variant = longest_cached(work.variants, keys)
    if variant is None:
        module = model_copy(work)
        variant = Variant(work, recipe[:0], module, module, torch.get_num_threads())
        keep(work.variants, keys[0], variant)
    with progress("applying", len(recipe) - done) as shown:
        for index in range(done, len(recipe)):
            variant = _apply_step(variant, recipe[: index + 1], reference, should_stop)
            keep(work.variants, keys[index + 1], variant)
            shown.advance(doing=recipe.steps[index].label)
    # Otherwise it is the same model with other remarks.
    is_same = variant.recipe.to_text() == recipe.to_text()
    return variant if is_same else replace(variant, recipe=recipe)


def apply_as_timed(
    work: Workload, recipe: Recipe, *, should_stop: Callable[[], bool] | None = None
) -> Variant:
    """The variant as it is timed: with the workload's threads, where no engine has its own."""
    with threads(faster_threads(work)):
        return apply(work, recipe, should_stop=should_stop)


def _apply_step(
    before: Variant, recipe: Recipe, reference: Any, should_stop: Callable[[], bool] | None
) -> Variant:
    """Apply one step to a copy, timed, and check it against the draft before and the original."""
    step = recipe.steps[-1]
    began = time.perf_counter()
    draft = Draft(
        before.work, before.module if step.leaves_module else model_copy(before.work, before.module)
    )
    draft.should_stop, draft.earlier = should_stop or draft.should_stop, recipe.steps[:-1]
    draft.pool = before.pool
    try:
        step.apply(draft)
        draft.call_in_pool()
        error = _check(step, before, draft, reference)
    except StoppedError as stop:
        raise StoppedError(f"Step '{step.label}' {stop}") from stop
    except StepError as problem:
        raise StepError(f"{_refused(step, before)}: {problem}") from problem
    except PaifuserError:
        raise
    except Exception as problem:
        raise StepError(
            f"{_refused(step, before)}: {_reason(problem, before.module)}; nothing was changed."
        ) from problem
    report = StepReport(
        step=step.label,
        seconds=time.perf_counter() - began,
        relative_error=error,
        notes=tuple(draft.notes),
    )
    remembered = (*before.remembered, draft.remembered)
    return Variant(
        before.work,
        recipe,
        draft.module,
        draft.model,
        draft.threads,
        (*before.reports, report),
        remembered,
        draft.pool,
    )


def _reason(problem: Exception, module: nn.Module) -> str:
    if isinstance(module, torch.jit.ScriptModule):
        return (
            "it is scripted or traced, so its layers can no longer be changed (give the model "
            "that it was created from)"
        )
    return f"{type(problem).__name__}: {first_line(problem)}"


def _refused(step: Step, before: Variant) -> str:
    return f"Step '{step.label}' cannot be applied to {before.work.name}"


def _check(step: Step, before: Variant, draft: Draft, reference: Any) -> float:
    """The relative error against the reference; an exact step must keep its tolerance, too."""
    output = _output(draft.work, draft.model)
    if invalid := not_finite(reference, output):
        raise StepError(f"its output holds {invalid}; choose a wider format or leave the step out.")
    try:
        if step.allowed_error is not None:
            _check_exact(step.allowed_error, before, draft, output)
        return output_error(reference, output)[0]
    except MeasureError as error:
        raise StepError(f"{error} Nothing was changed.") from error


def _check_exact(allowed: float, before: Variant, draft: Draft, output: Any) -> None:
    if computes_in_16_bits(before.module):
        allowed = max(allowed, HALF_TOLERANCE)
    if any(isinstance(layer, QuantizedLayer) for layer in before.module.modules()):
        allowed = max(allowed, INT8_TOLERANCE)
    error, _ = output_error(_output(before.work, before.model), output)
    if not error <= allowed:
        raise StepError(
            f"it should be exact, and its output differs by {error:.1e} (allowed {allowed:.0e})"
            f"{_why_not_exact(before, draft)}; nothing was changed."
        )


def _why_not_exact(before: Variant, draft: Draft) -> str:
    """The known reason why an engine computes other integers than the eager layers."""
    if draft.engine is None or UNREDUCED not in range_notes(before.module):
        return ""
    return (
        ": its int8 weights use 8 bits (reduced_range: false), of which engines saturate on this "
        "processor, which has no VNNI; leave 'backend' or 'reduced_range' out"
    )


def _output(work: Workload, model: nn.Module) -> Any:
    with running(model):
        return work.inputs.clone()(model)
