"""What a comparison times, and the rows that come of it: the baseline and each variant, with each
number of threads.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field, replace
from typing import Any, Literal

from torch import nn

from ..engines.threads import faster_threads
from ..errors import MeasureError, PaifuserError, StepError, first_line, keep_when_stopped
from ..fusion import packed_bytes
from ..machine import machine_label, thread_choices, threads
from ..measure import (
    Candidate,
    MachineWatch,
    Samples,
    flops,
    output_error,
    peak_bytes,
    ratio_of_rounds,
    spread,
    waited_share,
)
from ..model.watch import not_finite
from ..model.weights import parameter_count, weights_bytes, weights_hash
from ..records import Comparison, Measurement, Quality, counted
from ..records.quality import readable_interval, word_for
from ..workload import Workload, running
from . import Variant, apply
from .recipe import Recipe, checked_recipe

NO_GAIN = {
    "slower": "slower than the baseline",
    "no difference": "no faster than the baseline, within the interval",
}
POOL_EFFECTS = {
    "": "was not compared",
    "faster": "helps",
    "slower": "costs time: leave it out",
    "no difference": "makes no difference: leave it out",
    "not told": "may help or not, which a busy machine does not show",
}

COMPILING_S = 20.0  # what a C++ compiler takes is not known before: 8 to 35 s for ours

Threads = int | Literal["each"] | None


@dataclass
class Building:
    """When building has to end, and how long the last recipe of each kind took."""

    until: float
    took_s: dict[tuple[str, ...], float] = field(default_factory=dict)

    @contextmanager
    def of(self, recipe: Recipe) -> Iterator[None]:
        """Time the building of a recipe; raise where it would not end in time."""
        kind = _kind(recipe)
        began = time.perf_counter()
        usual_s = self.took_s.get(kind, COMPILING_S if "inductor" in kind else 0.0)
        if self.took_s and began + usual_s > self.until:  # the first is built in any case
            raise StepError("not built: the seconds do not suffice; give more")
        try:
            yield
        finally:
            self.took_s[kind] = time.perf_counter() - began


def _kind(recipe: Recipe) -> tuple[str, ...]:
    """Recipes of one kind take equally long: the same engine after the same steps."""
    kinds = [step.kind for step in recipe]
    return (*kinds, *(str(step.options.get("name")) for step in recipe if step.kind == "backend"))


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

    @property
    def steps(self) -> tuple[str, ...]:
        return tuple(step.label for step in self.variant.recipe) if self.variant else ()

    @property
    def without_pool(self) -> Contender | None:
        """The same model without its memory pool; None if it has none."""
        has_pool = self.variant is not None and self.variant.pool is not None
        return replace(self, is_without_pool=True) if has_pool else None

    def around(self) -> AbstractContextManager[object]:
        """What is in force while it is timed."""
        pool = self.variant.pool if self.variant else None
        if pool is None:
            return nullcontext()
        return pool.suspended() if self.is_without_pool else pool.held()

    def candidate(self, work: Workload) -> Candidate:
        """Its calls on its own copy of the inputs, since a model may write into them."""
        inputs, model = work.inputs.clone(), self.model
        return Candidate(self.key, lambda: inputs(model), self.threads, work.device, self.around)


@dataclass(frozen=True)
class Timings:
    """What was timed so far, against which baseline, and how quiet the machine was."""

    samples: dict[str, Samples]
    baseline: Contender
    quality: Quality
    is_interrupted: bool = False

    @property
    def rounds(self) -> int:
        return max(len(sample.rounds_ms) for sample in self.samples.values())

    def latencies(self, contender: Contender) -> dict[str, Any]:
        """The fields of a row that are known after every round."""
        timed = self.samples[contender.key]
        speedup, interval = ratio_of_rounds(self.samples[self.baseline.key], timed)
        return {
            "name": contender.name,
            "steps": contender.steps,
            "threads": contender.threads,
            "latency_ms": timed.median_ms,
            "best_ms": timed.best_ms,
            "spread_ms": timed.spread_ms,
            "speedup": speedup,
            "speedup_interval": interval,
        }


@dataclass(frozen=True)
class Trial:
    """One comparison: what is timed on a workload, and a row for each recipe that failed."""

    work: Workload
    reference: Any
    baselines: tuple[Contender, ...]
    contenders: tuple[Contender, ...]
    failed: tuple[Measurement, ...]

    @classmethod
    def of(
        cls,
        work: Workload,
        requested: Iterable[tuple[str, Variant | Recipe]],
        asked: Threads,
    ) -> Trial:
        """The trial of these variants; recipes are applied."""
        requested = list(requested)
        for _, subject in requested:
            check_kind(subject)
        reference = work.output()
        counts = _counts(work, asked)
        baselines = tuple(
            Contender(name, work.model, work.model, count)
            for name, count in zip(_baseline_names(counts), counts, strict=True)
        )
        _check_names([*(baseline.name for baseline in baselines), *(name for name, _ in requested)])
        contenders: list[Contender] = []
        failed: list[Measurement] = []
        for name, subject in requested:
            variant = _variant(work, name, subject, counts[-1], Building(math.inf))
            if isinstance(variant, Measurement):
                failed.append(variant)
                continue
            has_choice = not variant.has_own_threads and work.device.type == "cpu"
            contenders += [
                Contender(name, variant.model, variant.module, count, variant)
                for count in (counts if has_choice else (variant.threads,))
            ]
        return cls(work, reference, baselines, tuple(contenders), tuple(failed))

    @property
    def timed(self) -> tuple[Contender, ...]:
        """All that is timed in turn; a variant with a memory pool also without it."""
        twins = (twin for item in self.contenders if (twin := item.without_pool) is not None)
        return (*self.baselines, *self.contenders, *twins)

    def timings(
        self, watch: MachineWatch, samples: dict[str, Samples], *, is_over: bool = False
    ) -> Timings:
        """The samples with the quality of the machine; other processes are named at the end."""
        baseline = min(self.baselines, key=lambda item: samples[item.key].median_ms)
        own = samples[baseline.key]
        others = [sample for sample in samples.values() if sample is not own]
        is_cpu = self.work.device.type == "cpu"
        quality = watch.quality(
            waited_share=waited_share(list(samples.values())) if is_cpu else None,
            spread=spread(own.rounds_ms),
            sleeps=own.median_sleeps if is_cpu else None,
            intervals=[ratio_of_rounds(own, other)[1] for other in others],
            with_processes=is_over,
        )
        return Timings(samples, baseline, quality)

    def shown(self, samples: dict[str, Samples]) -> list[Contender]:
        """What becomes a row: every baseline, and each name with its faster number of threads."""
        fastest: dict[str, Contender] = {}
        for item in self.contenders:
            best = fastest.setdefault(item.name, item)
            if samples[item.key].median_ms < samples[best.key].median_ms:
                fastest[item.name] = item
        return [*self.baselines, *fastest.values()]

    def so_far(self, timings: Timings) -> Comparison:
        """The latencies of the rounds so far, without memory, error, FLOPs or metric."""
        shown = self.shown(timings.samples)
        rows = [Measurement(**timings.latencies(contender)) for contender in shown]
        return self.comparison(replace(timings, is_interrupted=True), rows)

    def comparison(
        self, timings: Timings, rows: Iterable[Measurement], metric_name: str | None = None
    ) -> Comparison:
        """The record of these rows."""
        return Comparison(
            workload=self.work.name,
            machine=machine_label(),
            baseline=timings.baseline.name,
            metric_name=metric_name,
            smaller_is_better=self.work.smaller_is_better,
            rounds=timings.rounds,
            is_interrupted=timings.is_interrupted,
            quality=timings.quality,
            rows=tuple(rows),
        )

    def row(
        self, contender: Contender, timings: Timings, *, with_metric: bool
    ) -> tuple[Measurement, bool]:
        """A row, and whether it was interrupted; if so, it keeps the timings and has no metric."""
        with keep_when_stopped():
            made = self._made(contender, lambda: self._row(contender, timings, with_metric))
            return made, False
        return self._made(contender, lambda: self._row(contender, timings, False)), True

    def screened(self, contender: Contender, timings: Timings) -> Measurement:
        """A row with the latency and the output error, which take little time."""

        def measured() -> Measurement:
            relative, largest = self._error(contender)
            return Measurement(
                **timings.latencies(contender),
                rounds=timings.rounds,
                relative_error=relative,
                max_error=largest,
                size_bytes=weights_bytes(contender.module),
            )

        return self._made(contender, measured)

    def _made(self, contender: Contender, row: Callable[[], Measurement]) -> Measurement:
        """A row; of a variant that fails, e.g. on test data of other shapes, one with the error."""
        try:
            return row()
        except Exception as error:
            if contender.variant is None:
                raise
            why = f"{type(error).__name__}: {first_line(error)}"
            return _failed(contender.name, contender.steps, contender.threads, why)

    def _error(self, contender: Contender) -> tuple[float, float]:
        """The relative and the largest output error."""
        with running(contender.model):
            output = self.work.inputs.clone()(contender.model)
        if contender.variant is not None and (values := not_finite(self.reference, output)):
            raise MeasureError(
                f"the output holds {values}; choose a wider format, or apply the recipe again."
            )
        return output_error(self.reference, output)

    def _row(self, contender: Contender, timings: Timings, with_metric: bool) -> Measurement:
        work, variant, timed = self.work, contender.variant, timings.samples[contender.key]
        relative, largest = self._error(contender)
        with running(contender.model):
            peak = _peak(contender, work)
        with running(contender.module):
            count = flops(contender.module, lambda module: work.inputs.clone()(module))
        known = timings.latencies(contender)
        no_gain = NO_GAIN.get(word_for(known["speedup_interval"], timings.quality))
        return Measurement(
            **known,
            cpu_ms=timed.median_cpu_ms,
            peak_bytes=peak,
            size_bytes=weights_bytes(contender.module),
            parameters=parameter_count(contender.module),
            flops=count,
            relative_error=relative,
            max_error=largest,
            metric=work.evaluate(contender.model) if with_metric else None,
            build_s=variant.build_s if variant else None,
            weights_hash=weights_hash(contender.module),
            page_faults=timed.median_page_faults,
            notes=(
                *(variant.notes if variant else ()),
                *_pool_note(contender, timings),
                *([no_gain] if variant and no_gain else ()),
            ),
        )


def built(
    work: Workload, recipes: Iterable[Recipe], seconds: float
) -> tuple[list[Variant], list[Measurement]]:
    """The variants that are built within the seconds, and a row for each other recipe."""
    building, count = Building(time.perf_counter() + seconds), faster_threads(work)
    made = [_variant(work, recipe.label, recipe, count, building) for recipe in recipes]
    variants = [one for one in made if isinstance(one, Variant)]
    return variants, [one for one in made if isinstance(one, Measurement)]


def _failed(name: str, steps: tuple[str, ...], count: int, why: str) -> Measurement:
    return Measurement(name=name, steps=steps, threads=count, failure=why)


def _variant(
    work: Workload, name: str, subject: Variant | Recipe, count: int, building: Building
) -> Variant | Measurement:
    """The variant of a recipe, by default with `count` threads; its row if it cannot be applied."""
    if isinstance(subject, Recipe):
        try:
            with threads(count), building.of(subject):
                return apply(work, subject)
        except PaifuserError as error:
            return _failed(name, tuple(step.label for step in subject), count, str(error))
    own = subject.work  # perhaps a copy that states the preprocessing of a saved folder
    if own.model is not work.model or own.inputs is not work.inputs:
        raise MeasureError(
            f"variant '{name}' was made from workload {own.name!r}; compare it with that one."
        )
    return subject


def check_kind(subject: object) -> None:
    """Raise unless the subject is a variant or a recipe."""
    if isinstance(subject, Workload):
        raise MeasureError(
            f"{subject.name} is a workload, not a variant of one; from a folder that is "
            "lab.Variant.load(folder, work)."
        )
    if not isinstance(subject, Variant):
        checked_recipe(subject)


def _check_names(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise MeasureError(
                f"Two rows would be called '{name}'; name one of them: compare(work, other_name=…)."
            )


def _counts(work: Workload, asked: Threads) -> tuple[int, ...]:
    """The numbers of threads to compare with: the given one, each of `thread_choices()`, or the
    one that suits the unchanged model (on a GPU threads do not matter).
    """
    if asked == "each":
        return thread_choices() if work.device.type == "cpu" else thread_choices()[-1:]
    return (faster_threads(work) if asked is None else asked,)


def _baseline_names(counts: tuple[int, ...]) -> list[str]:
    if len(counts) == 1:
        return ["baseline"]
    return [f"baseline · {counted(count, 'thread')}" for count in counts]


def _peak(contender: Contender, work: Workload) -> int | None:
    """Bytes of weights, packed copies and a call's peak; None for an engine outside torch."""
    from ..engines.exported import Exported

    if isinstance(contender.model, Exported):
        return None
    inputs = work.inputs.clone()
    call: Callable[[], Any] = lambda: inputs(contender.model)
    weights = weights_bytes(contender.module) + packed_bytes(contender.module)
    return weights + peak_bytes(call, work.device)


def _pool_note(contender: Contender, timings: Timings) -> tuple[str, ...]:
    """A note on whether the variant's memory pool helps: against the same model without it."""
    twin = contender.without_pool
    if twin is None:
        return ()
    without, timed = timings.samples[twin.key], timings.samples[contender.key]
    speedup, interval = ratio_of_rounds(without, timed)
    effect = POOL_EFFECTS[word_for(interval, timings.quality)]
    counts = (without.median_page_faults, timed.median_page_faults)
    faults = "" if None in counts else "; {:,.0f} page faults a call without it, {:,.0f} with it"
    return (
        f"the memory pool {effect} ({speedup:.2f} ×, {readable_interval(interval)})"
        f"{faults.format(*counts)}",
    )
