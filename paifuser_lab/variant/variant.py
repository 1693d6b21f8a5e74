"""A changed copy of a model, made by applying a recipe. The user's own model is never touched.

Each step works on a copy of what the step before it made, is checked on the example inputs, and is
dropped whole if it fails. What a recipe's first steps made is kept, so that undoing, redoing and
going on from there are quick.
"""

from __future__ import annotations

import copy
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from pathlib import Path
from typing import Any

import psutil
import torch
from torch import nn

from ..engines import Engine
from ..errors import (
    FileError,
    MeasureError,
    PaifuserError,
    StepError,
    StoppedError,
    WorkloadError,
    first_line,
)
from ..measure import output_error
from ..model.copying import copied
from ..model.watch import not_finite
from ..model.weights import answer_hash, parameter_count, weights_bytes, weights_hash
from ..progress import progress
from ..quantization import Int8Layer, QuantizedLayer, saturates
from ..quantization.float_formats import computes_in_16_bits
from ..recipe import Recipe, checked_recipe
from ..records import FusionMap, Measurement, Record, SavedModel, SavedStep, StepReport
from ..steps import Draft, Step
from ..workload import Workload, outside_inference, running, workload_of
from .folder import original_of, read_folder, rebuild, sketch_of, write_folder

MOST_KEPT = 12
SHARE_OF_MEMORY = 0.2  # of the machine's, for what is kept
INT8_TOLERANCE = 0.05  # where it rounds to whole numbers, and a last bit before decides to which
HALF_TOLERANCE = 0.1  # what an exact step may differ by where the draft already computes in 16 bits


@dataclass(frozen=True)
class Variant:
    """A model with a recipe applied: `variant.model` is called like the model it came from."""

    work: Workload
    recipe: Recipe
    module: nn.Module
    model: nn.Module
    threads: int
    reports: tuple[StepReport, ...] = ()
    remembered: tuple[
        dict[str, Any], ...
    ] = ()  # of each step: what it needs to be done again without choosing

    @property
    def notes(self) -> tuple[str, ...]:
        """What the steps said they did."""
        return tuple(note for report in self.reports for note in report.notes)

    @cached_property
    def fusions(self) -> FusionMap | None:
        """Which places run as one, where a step `fuse` looked for them."""
        found = [
            told["map"]
            for step, told in zip(self.recipe, self.remembered, strict=True)
            if step.kind == "fuse"
        ]
        return FusionMap.model_validate(found[-1]) if found else None

    @property
    def has_own_threads(self) -> bool:
        """Whether a backend fixed the number of threads; otherwise it runs with as many as torch is
        set to.
        """
        return isinstance(self.model, Engine)

    @property
    def own_threads(self) -> int | None:
        """The number of threads that a backend fixed, if one did."""
        return self.threads if self.has_own_threads else None

    @property
    def workload(self) -> Workload:
        """The variant as a workload, for every tool that looks at one; what an engine runs cannot
        be seen into.
        """
        derived = copy.copy(self.work)
        derived.variants, derived.origin = OrderedDict(), None
        derived.applied = (*self.work.applied, *({step.kind: step.options} for step in self.recipe))
        derived.model = self.module if type(self.model) is Engine else self.model
        derived.name = f"{self.work.name} · {self.recipe.label}"
        return derived

    @property
    def build_s(self) -> float:
        """How long it took to make."""
        return sum(report.seconds for report in self.reports)

    @cached_property
    def weights_hash(self) -> str:
        """The hash of the weights as they were made."""
        return weights_hash(self.module)

    def save(self, folder: str | Path, report: Record | None = None) -> Path:
        """Write the model into a folder, from which `lab.load(folder)` has it again to the bit.

        The folder holds recipe, structure, weights, hashes of these and a report: the one that is
        given, such as a comparison; else one about these weights that lies there, or what was
        checked when the recipe was applied.
        """
        origin = self.work.origin
        named = Recipe(
            self.recipe,
            workload=origin.name if origin else self.recipe.workload,
            limit=self.recipe.limit,
        )
        write_folder(Path(folder), named, self.module, self._saved(), report, self._checked())
        return Path(folder)

    @classmethod
    @outside_inference
    def load(
        cls,
        folder: str | Path,
        work: Workload | None = None,
        *,
        trained: bool = True,
        trust: bool = False,
        **chosen: Any,
    ) -> Variant:
        """The variant that a folder holds: of `work` where it is given, else of the original built
        by the name in the folder.

        Nothing in the folder is executed: the code is the original's and that of the steps. An
        original that the folder names as `package.module:function` is imported and called only with
        `trust=True`, or where the module `trust` allows it without. With `trained=False` the
        original is not trained, and is no baseline. `chosen` is what `lab.load` takes: batch, seed,
        device, and options of the original.
        """
        if work is not None and chosen:
            raise WorkloadError(
                f"{', '.join(chosen)} belongs to the original, which was given; leave it out."
            )
        found = read_folder(folder)
        original = (
            workload_of(work)
            if work is not None
            else original_of(found, trained=trained, trust=trust, **chosen)
        )
        if work is None and trained and weights_hash(original.model) != found.saved.original_hash:
            raise FileError(
                f"{folder} was made from other weights than {original.name} has here; give the "
                "original, which comparisons need: "
                f"Variant.load(folder, original). lab.load(folder) does without it."
            )
        draft = rebuild(found, original, _copy(original))
        reports = tuple(step.report for step in found.saved.steps)
        remembered = tuple(step.remembered for step in found.saved.steps)
        return cls(
            original, found.recipe, draft.module, draft.model, draft.threads, reports, remembered
        )

    def _saved(self) -> SavedModel:
        return SavedModel(
            name=self.work.name,
            origin=self.work.origin,
            original_hash=weights_hash(self.work.model),
            weights_hash=weights_hash(self.module),
            steps=tuple(
                SavedStep(
                    kind=step.kind,
                    package=type(step).__module__.partition(".")[0],
                    report=report,
                    remembered=remembered,
                )
                for step, report, remembered in zip(
                    self.recipe, self.reports, self.remembered, strict=True
                )
            ),
            sketch=sketch_of(self.work, self.model) if self._was_run else None,
        )

    @property
    def _was_run(self) -> bool:
        """Whether the steps were checked on example inputs; `quantize_model` without data has
        none.
        """
        return all(one.relative_error is not None for one in self.reports)

    def _checked(self) -> Measurement:
        """What is known without measuring."""
        return Measurement(
            name=self.recipe.label,
            steps=tuple(step.label for step in self.recipe),
            threads=self.threads,
            size_bytes=weights_bytes(self.module),
            parameters=parameter_count(self.module),
            relative_error=self.reports[-1].relative_error if self.reports else 0.0,
            build_s=self.build_s,
            weights_hash=weights_hash(self.module),
            notes=self.notes,
        )

    def __repr__(self) -> str:
        return f"Variant({self.work.name}: {self.recipe.label})"


@outside_inference
def apply(
    work: Workload, recipe: Recipe, *, should_stop: Callable[[], bool] | None = None
) -> Variant:
    """Make a variant: a copy of the workload's model with every step of the recipe applied and
    checked, or an error and no change.

    A step that takes long asks `should_stop` now and then, and ends with a StoppedError; applied
    again it goes on from there.
    """
    work, recipe = workload_of(work), checked_recipe(recipe)
    reference = work.output()
    keys = _prefix_keys(work, recipe, reference)
    done, variant = _longest_kept(work.variants, keys)
    if variant is None:
        module = _copy(work)
        variant = Variant(work, recipe[:0], module, module, torch.get_num_threads())
        _keep(work.variants, keys[0], variant)
    with progress("applying", len(recipe) - done) as shown:
        for index in range(done, len(recipe)):
            variant = _apply_step(variant, recipe[: index + 1], reference, should_stop)
            _keep(work.variants, keys[index + 1], variant)
            shown.advance(doing=recipe.steps[index].label)
    is_same = (
        variant.recipe.to_text() == recipe.to_text()
    )  # else it is the same model, chosen for other reasons
    return variant if is_same else replace(variant, recipe=recipe)


def _apply_step(
    before: Variant, recipe: Recipe, reference: Any, should_stop: Callable[[], bool] | None
) -> Variant:
    """One step further: on a copy, timed, checked against the draft before it and against the
    baseline's shape.
    """
    step = recipe.steps[-1]
    began = time.perf_counter()
    draft = Draft(
        before.work, before.module if step.leaves_module else _copy(before.work, before.module)
    )
    draft.should_stop, draft.earlier = should_stop or draft.should_stop, recipe.steps[:-1]
    try:
        step.apply(draft)
        error = _check(step, before, draft, reference)
    except StoppedError as stop:
        raise StoppedError(f"Step '{step.label}' {stop}") from stop
    except StepError as problem:
        raise StepError(f"{_told(step, before)}: {problem}") from problem
    except PaifuserError:
        raise
    except Exception as problem:
        raise StepError(
            f"{_told(step, before)}: {_reason(problem, before.module)}; nothing was changed."
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
    )


def _reason(problem: Exception, module: nn.Module) -> str:
    if isinstance(module, torch.jit.ScriptModule):
        return (
            "it is scripted or traced, and its layers cannot be changed any more (give the model "
            "that it was made from)"
        )
    return f"{type(problem).__name__}: {first_line(problem)}"


def _told(step: Step, before: Variant) -> str:
    return f"Step '{step.label}' cannot be applied to {before.work.name}"


def _check(step: Step, before: Variant, draft: Draft, reference: Any) -> float:
    """The relative error against the baseline; an exact step is held to its tolerance against the
    draft before it.
    """
    output = _answer(draft.work, draft.model)
    if found := not_finite(reference, output):
        raise StepError(
            f"its answer holds {found}; choose a wider number format or leave the step out."
        )
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
    error, _ = output_error(_answer(before.work, before.model), output)
    if not error <= allowed:
        raise StepError(
            f"it should be exact, and its answer differs by {error:.1e} (allowed {allowed:.0e})"
            f"{_why_not_exact(before, draft)}; nothing was changed."
        )


def _why_not_exact(before: Variant, draft: Draft) -> str:
    """The known reason why an engine computes other integers than the live layers."""
    is_int8 = any(isinstance(layer, Int8Layer) for layer in before.module.modules())
    if not (draft.engine is not None and is_int8 and saturates()):
        return ""
    return (
        ": this processor has no VNNI, and without it engines add pairs of int8 products in 16 "
        "bits, where large ones "
        "saturate, which the live layers avoid; leave 'backend' out, or the layers in fp32"
    )


def _answer(work: Workload, model: nn.Module) -> Any:
    with running(model):
        return work.inputs.clone()(model)


def _copy(work: Workload, module: nn.Module | None = None) -> nn.Module:
    """A copy of the workload's model, or of what a step made of it, that shares nothing with it."""
    try:
        return copied(module or work.model).eval()
    except Exception as error:
        raise StepError(
            f"{work.name} cannot be copied ({first_line(error)}), and a recipe is only applied to "
            "a copy."
        ) from error


def _prefix_keys(work: Workload, recipe: Recipe, reference: Any) -> list[str]:
    """A key for each prefix of the recipe: the model's weights, build and answer, the steps so far,
    and torch's threads.
    """
    base = (
        f"{weights_hash(work.model)} {answer_hash(reference)} {work.model} "
        f"{torch.get_num_threads()}"
    )
    return [f"{base} {recipe[:count].digest}" for count in range(len(recipe) + 1)]


def _longest_kept(kept: OrderedDict[str, Variant], keys: list[str]) -> tuple[int, Variant | None]:
    """The longest prefix that was made before and has not been changed by hand since."""
    for count in range(len(keys) - 1, -1, -1):
        found = kept.get(keys[count])
        if found is None:
            continue
        if weights_hash(found.module) == found.weights_hash:
            kept.move_to_end(keys[count])
            return count, found
        del kept[keys[count]]
    return 0, None


def _keep(kept: OrderedDict[str, Variant], key: str, variant: Variant) -> None:
    variant.weights_hash  # noqa: B018 (taken now, to see later whether somebody changed the weights)
    kept[key] = variant
    drop_oldest(kept)


def drop_oldest(kept: OrderedDict[str, Variant]) -> None:
    """Forget the variants that were not used for longest, until the rest are few enough and take
    little enough memory.
    """
    budget = psutil.virtual_memory().total * SHARE_OF_MEMORY
    while len(kept) > MOST_KEPT or (
        len(kept) > 2 and sum(weights_bytes(one.module) for one in kept.values()) > budget
    ):
        kept.popitem(last=False)
