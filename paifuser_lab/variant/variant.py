"""The Variant: a copy of a model, changed by a recipe; the user's own model is never changed.

`apply` creates it; this module has its fields, and how it is saved and loaded.
"""

from __future__ import annotations

import copy
import logging
from collections import OrderedDict
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from torch import nn

from ..engines import Enclosed, Engine
from ..errors import FileError, StepError, WorkloadError, first_line
from ..memory.pools import MemoryPool
from ..model.copying import copied
from ..model.weights import parameter_count, weights_bytes, weights_hash
from ..records import FusionMap, Measurement, Record, SavedModel, SavedStep, StepReport
from ..records.record import WorkloadName, workload_key
from ..workload import Workload, outside_inference, workload_of
from .folder import (
    can_be_named,
    original_of,
    read_folder,
    rebuild,
    sketch_of,
    write_folder,
)
from .recipe import Recipe

logger = logging.getLogger(__name__)
NAMELESS = (
    "%s holds weights and recipe, not the code of '%s', which has no name to load it by: load it "
    "with lab.load(%r, work=original), where original = lab.Workload(model, inputs)."
)


@dataclass(frozen=True)
class Variant:
    """A model with a recipe applied; `variant.model` is called like the original model."""

    work: Workload
    recipe: Recipe
    module: nn.Module
    model: nn.Module
    threads: int
    reports: tuple[StepReport, ...] = ()
    remembered: tuple[dict[str, Any], ...] = ()  # what each step needs to be rebuilt
    pool: MemoryPool | None = None  # in force during each call of `model`
    original_hash: str = ""  # of the original's weights, where a folder says it

    @property
    def notes(self) -> tuple[str, ...]:
        """The notes of all steps."""
        return tuple(note for report in self.reports for note in report.notes)

    @cached_property
    def fusions(self) -> FusionMap | None:
        """The fused sites, if a step `fuse` searched for them."""
        maps = [
            remembered["map"]
            for step, remembered in zip(self.recipe, self.remembered, strict=True)
            if step.kind == "fuse"
        ]
        return FusionMap.model_validate(maps[-1]) if maps else None

    @property
    def has_own_threads(self) -> bool:
        """Whether a backend fixed the number of threads; otherwise torch's setting applies."""
        return isinstance(self.model, Engine)

    @property
    def own_threads(self) -> int | None:
        """The number of threads that a backend fixed, if one did."""
        return self.threads if self.has_own_threads else None

    @property
    def workload(self) -> Workload:
        """The variant as a workload, for every tool that takes one; an engine's has no layers."""
        derived = copy.copy(self.work)
        derived.variants, derived.origin = OrderedDict(), None
        derived.applied = (*self.work.applied, *({step.kind: step.options} for step in self.recipe))
        derived.original_hash = self.original_hash or self.work.original_hash
        derived.model = self.module if type(self.model) in (Enclosed, Engine) else self.model
        name = f"{self.work.name} · {self.recipe.label}"
        derived.name = WorkloadName(name, key=workload_key(self.work.name))
        return derived

    @property
    def build_s(self) -> float:
        """The seconds that its steps took."""
        return sum(report.seconds for report in self.reports)

    @cached_property
    def weights_hash(self) -> str:
        """The hash of the weights when the variant was created."""
        return weights_hash(self.module)

    @property
    def has_named_original(self) -> bool:
        """Whether a saved folder names its original, so that it is loaded without it."""
        return self.work.origin is not None or can_be_named(self.recipe.workload)

    def save(self, folder: str | Path, report: Record | None = None) -> Path:
        """Save the model in a folder, from which `lab.load(folder)` restores it exactly.

        The folder holds recipe, structure, weights, their hashes and a report: the given one, such
        as a comparison; else an existing one about these weights, or the checks of `apply`. It
        holds no code: a model of your own is loaded with `lab.load(folder, work=original)`, which
        is logged here.
        """
        origin = self.work.origin
        named = Recipe(
            self.recipe,
            workload=origin.name if origin else self.recipe.workload,
            limit=self.recipe.limit,
        )
        write_folder(Path(folder), named, self.module, self._saved(), report, self._checked())
        if not self.has_named_original:
            logger.warning(NAMELESS, folder, self.work.name, str(folder))
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
        """The variant in a folder: of `work` if given, else of the original built by the name in
        the folder.

        Nothing in the folder is executed: the code is the original's and that of the steps. An
        original that the folder names as `package.module:function` is imported and called only with
        `trust=True`, or where the module `trust` allows it without. With `trained=False` the
        original is not trained, and is no baseline. `chosen` are the options of `lab.load`: batch,
        seed, device, and options of the original.
        """
        if work is not None and chosen:
            raise WorkloadError(
                f"{', '.join(chosen)} belongs to the original, which was given as work; leave it "
                "out."
            )
        saved = read_folder(folder)
        original = (
            workload_of(work)
            if work is not None
            else original_of(saved, trained=trained, trust=trust, **chosen)
        )
        if original.preprocessing is None and (stated := saved.saved.preprocessing) is not None:
            original = copy.copy(original)  # what the user gave stays as it is
            original.preprocessing = stated.model_copy(update={"size": None})
        if work is None and trained and weights_hash(original.model) != saved.saved.original_hash:
            raise FileError(
                f"{folder} was made from other weights than {original.name} has here; give the "
                "original, which comparisons need: Variant.load(folder, original). "
                "lab.load(folder) does without it."
            )
        draft, notes = rebuild(saved, original, model_copy(original))
        reports = [step.report for step in saved.saved.steps]
        if notes:
            reports[-1] = reports[-1].model_copy(update={"notes": (*reports[-1].notes, *notes)})
        remembered = tuple(step.remembered for step in saved.saved.steps)
        return cls(
            original,
            saved.recipe,
            draft.module,
            draft.model,
            draft.threads,
            tuple(reports),
            remembered,
            draft.pool,
            saved.saved.original_hash,
        )

    def _saved(self) -> SavedModel:
        # `quantize_model` without data checks no step on inputs
        was_run = all(report.relative_error is not None for report in self.reports)
        return SavedModel(
            name=self.work.name,
            origin=self.work.origin,
            original_hash=self.original_hash or weights_hash(self.work.model),
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
            preprocessing=self.work.preprocessing,
            sketch=sketch_of(self.work, self.model) if was_run else None,
        )

    def _checked(self) -> Measurement:
        """The measurement as far as known without timing."""
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


def model_copy(work: Workload, module: nn.Module | None = None) -> nn.Module:
    """A deep copy of the workload's model, or of a step's result."""
    try:
        return copied(module or work.model).eval()
    except Exception as error:
        raise StepError(
            f"{work.name} cannot be copied ({first_line(error)}), and a recipe is only applied to "
            "a copy."
        ) from error
