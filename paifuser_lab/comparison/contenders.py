"""What a comparison times: the baseline and each variant, for each number of threads."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass, replace
from typing import Literal

from torch import nn

from ..errors import MeasureError, PaifuserError
from ..machine import thread_choices, threads
from ..measure import Samples, faster_threads
from ..recipe import Recipe, checked_recipe
from ..records import Measurement, counted
from ..variant import Variant, apply
from ..workload import Workload


@dataclass(frozen=True)
class Contender:
    """A model to time with a number of threads; it becomes a row."""

    name: str
    model: nn.Module
    module: nn.Module
    threads: int
    variant: Variant | None = None
    is_without_pool: bool = False
    """Whether the variant's memory pool is out of force, to see what it changes; it is no row."""

    @property
    def key(self) -> str:
        """The name with the number of threads, which tells apart runs of the same model."""
        without = " · without its memory pool" if self.is_without_pool else ""
        return f"{self.name} · {self.threads} threads{without}"

    def around(self) -> AbstractContextManager[object]:
        """What is in force while it is timed."""
        pool = self.variant.pool if self.variant else None
        if pool is None:
            return nullcontext()
        return pool.suspended() if self.is_without_pool else pool.held()

    @property
    def without_pool(self) -> Contender | None:
        """The same model without its memory pool; None if it has none."""
        has_pool = self.variant is not None and self.variant.pool is not None
        return replace(self, is_without_pool=True) if has_pool else None


def labels(variant: Variant | None) -> tuple[str, ...]:
    return tuple(step.label for step in variant.recipe.steps) if variant else ()


def fastest_of(baselines: list[Contender], samples: dict[str, Samples]) -> Contender:
    return min(baselines, key=lambda item: samples[item.key].median_ms)


def name_of(variant: Variant | Recipe) -> str:
    return variant.label if isinstance(variant, Recipe) else variant.recipe.label


def check_kinds(*subjects: object) -> None:
    for subject in subjects:
        if isinstance(subject, Workload):
            raise MeasureError(
                f"{subject.name} is a workload, not a variant of one; from a folder that is "
                "lab.Variant.load(folder, work)."
            )
        if not isinstance(subject, Variant):
            checked_recipe(subject)


def check_names(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise MeasureError(
                f"Two rows would be called '{name}'; name one of them: compare(work, other_name=…)."
            )


def counts_of(work: Workload, asked: int | Literal["each"] | None) -> tuple[int, ...]:
    """The numbers of threads to compare with: the given one, each of `thread_choices()`, or the
    one that suits the unchanged model (on a GPU threads do not matter).
    """
    if asked == "each":
        return thread_choices() if work.device.type == "cpu" else thread_choices()[-1:]
    return (faster_threads(work) if asked is None else asked,)


def baselines_of(work: Workload, choices: tuple[int, ...]) -> list[Contender]:
    """The unchanged model, once for each number of threads."""
    names = (
        ["baseline"]
        if len(choices) == 1
        else [f"baseline · {counted(count, 'thread')}" for count in choices]
    )
    return [
        Contender(name, work.model, work.model, count)
        for name, count in zip(names, choices, strict=True)
    ]


def _is_of(own: Workload, work: Workload) -> bool:
    """Whether a variant's workload is this one, also as a copy that states the preprocessing of a
    saved folder.
    """
    return own.model is work.model and own.inputs is work.inputs


def contenders_of(
    work: Workload, requested: Iterable[tuple[str, Variant | Recipe]], counts: tuple[int, ...]
) -> tuple[list[Contender], list[Measurement]]:
    """The variants to time, recipes applied, and a row for each recipe that failed to apply."""
    contenders: list[Contender] = []
    failed: list[Measurement] = []
    for name, subject in requested:
        if isinstance(subject, Variant) and not _is_of(subject.work, work):
            raise MeasureError(
                f"variant '{name}' was made from workload {subject.work.name!r}; compare it with "
                "that one."
            )
        try:
            variant = (
                _applied(work, subject, counts[-1]) if isinstance(subject, Recipe) else subject
            )
        except PaifuserError as error:
            steps = (
                tuple(step.label for step in subject.steps) if isinstance(subject, Recipe) else ()
            )
            failed.append(
                Measurement(name=name, steps=steps, threads=counts[-1], failure=str(error))
            )
        else:
            has_choice = not variant.has_own_threads and work.device.type == "cpu"
            choices = counts if has_choice else (variant.threads,)
            contenders += [
                Contender(name, variant.model, variant.module, count, variant) for count in choices
            ]
    return contenders, failed


def _applied(work: Workload, recipe: Recipe, count: int) -> Variant:
    """The variant of a recipe; an engine without a number of threads of its own takes this one."""
    with threads(count):
        return apply(work, recipe)


def faster_of_each(contenders: list[Contender], samples: dict[str, Samples]) -> list[Contender]:
    """The faster number of threads for each name, in the order of the names."""
    fastest: dict[str, Contender] = {}
    for contender in contenders:
        if (
            contender.name not in fastest
            or samples[contender.key].median_ms < samples[fastest[contender.name].key].median_ms
        ):
            fastest[contender.name] = contender
    return list(fastest.values())
