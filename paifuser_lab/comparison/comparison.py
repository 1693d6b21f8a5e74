"""A baseline and variants of it, side by side: timed in turn, judged by the same data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from contextlib import ExitStack
from dataclasses import dataclass
from typing import Any

from torch import nn

from ..arguments import check_count, check_seconds
from ..errors import MeasureError, PaifuserError, first_line
from ..fusion import packed_bytes
from ..machine import hardware, thread_choices
from ..measure import (
    Candidate,
    Samples,
    flops,
    output_error,
    peak_bytes,
    ratio_of_rounds,
    rounds_in_turn,
)
from ..model.watch import not_finite
from ..model.weights import parameter_count, weights_bytes, weights_hash
from ..progress import progress
from ..recipe import Recipe, checked_recipe
from ..records import Comparison, Measurement, counted
from ..stopping import keep_when_stopped, stop_if_asked
from ..variant import Variant, apply
from ..workload import Workload, running, workload_of
from .limit import refusal

ROUNDS = 30
SECONDS = 30.0


@dataclass(frozen=True)
class _Contender:
    """A row in the making: what is called, and what it is made of."""

    name: str
    model: nn.Module
    module: nn.Module
    threads: int
    variant: Variant | None = None

    @property
    def key(self) -> str:
        """Apart from the same model with other threads."""
        return f"{self.name} · {self.threads} threads"


def compare(
    work: Workload,
    *variants: Variant | Recipe,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    metric: bool = True,
    should_stop: Callable[[], bool] | None = None,
    on_round: Callable[[int, Comparison], None] | None = None,
    **named: Variant | Recipe,
) -> Comparison:
    """Time the baseline and variants in turn and put them side by side.

    Whatever has no number of threads of its own runs with each sensible one. Both baselines are
    shown and speed-ups are against the faster; of a variant the faster is shown. A recipe is
    applied first; one that fails is a row that says why. Ends after `rounds` or `seconds`; when
    interrupted, what was measured until then is kept. `on_round` is told of each round: how many
    are done, and the latencies so far.
    """
    check_count("rounds", rounds)
    check_seconds(seconds)
    work = workload_of(work)
    _check_kinds(*variants, *named.values())
    output = work.output()
    baselines = _baselines(work)
    wanted = [*((_name_of(one), one) for one in variants), *named.items()]
    _check_names([*(one.name for one in baselines), *(name for name, _ in wanted)])
    contenders, failed = _contenders(work, wanted)

    def judge(samples: dict[str, Samples]) -> None:
        if on_round is not None:
            done = max(len(one.rounds_ms) for one in samples.values())
            on_round(done, _so_far(work, baselines, contenders, samples))

    samples, is_interrupted = _time(
        [*baselines, *contenders], work, rounds, seconds, should_stop, judge
    )
    fastest = _fastest(baselines, samples)
    rows: list[Measurement] = []
    judged: float | None = None
    for one in (*baselines, *_faster_of_each(contenders, samples)):
        row, is_stopped = _row_while_patient(
            one, work, output, samples, fastest, with_metric=metric and not is_interrupted
        )
        judged = row.metric if one is fastest else judged
        is_interrupted |= is_stopped
        past = (
            refusal(one.variant, row, judged, should_stop)
            if one.variant and not row.failure and not is_interrupted
            else None
        )
        rows.append(row.model_copy(update={"refused": past}))
    return Comparison(
        workload=work.name,
        machine=hardware().label,
        baseline=fastest.name,
        metric_name=work.metric_name if metric and work.test is not None else None,
        rounds=max(len(one.rounds_ms) for one in samples.values()),
        is_interrupted=is_interrupted,
        rows=(*rows, *failed),
    )


def _so_far(
    work: Workload,
    baselines: list[_Contender],
    contenders: list[_Contender],
    samples: dict[str, Samples],
) -> Comparison:
    """The latencies of the rounds so far, without what takes time to find out."""
    fastest = _fastest(baselines, samples)
    rows = []
    for one in (*baselines, *_faster_of_each(contenders, samples)):
        speedup, interval = ratio_of_rounds(samples[fastest.key], samples[one.key])
        timed = samples[one.key]
        rows.append(
            Measurement(
                name=one.name,
                steps=_labels(one.variant),
                threads=one.threads,
                latency_ms=timed.median_ms,
                best_ms=timed.best_ms,
                spread_ms=timed.spread_ms,
                speedup=speedup,
                speedup_interval=interval,
            )
        )
    return Comparison(
        workload=work.name,
        machine=hardware().label,
        baseline=fastest.name,
        rounds=max(len(one.rounds_ms) for one in samples.values()),
        is_interrupted=True,
        rows=tuple(rows),
    )


def _labels(variant: Variant | None) -> tuple[str, ...]:
    return tuple(step.label for step in variant.recipe.steps) if variant else ()


def _fastest(baselines: list[_Contender], samples: dict[str, Samples]) -> _Contender:
    return min(baselines, key=lambda one: samples[one.key].median_ms)


def _name_of(variant: Variant | Recipe) -> str:
    return variant.label if isinstance(variant, Recipe) else variant.recipe.label


def _check_kinds(*wanted: object) -> None:
    for one in wanted:
        if isinstance(one, Workload):
            raise MeasureError(
                f"{one.name} is a workload, not a variant of one; from a folder that is "
                "lab.Variant.load(folder, work)."
            )
        if not isinstance(one, Variant):
            checked_recipe(one)


def _check_names(names: list[str]) -> None:
    for name in names:
        if names.count(name) > 1:
            raise MeasureError(
                f"Two rows would be called '{name}'; name one of them: compare(work, other_name=…)."
            )


def _baselines(work: Workload) -> list[_Contender]:
    """The model as it is, once for each sensible number of threads (on a GPU threads do not
    matter).
    """
    choices = thread_choices() if work.device.type == "cpu" else thread_choices()[-1:]
    names = (
        ["baseline"]
        if len(choices) == 1
        else [f"baseline · {counted(count, 'thread')}" for count in choices]
    )
    return [
        _Contender(name, work.model, work.model, count)
        for name, count in zip(names, choices, strict=True)
    ]


def _contenders(
    work: Workload, wanted: Iterable[tuple[str, Variant | Recipe]]
) -> tuple[list[_Contender], list[Measurement]]:
    """The variants to time, recipes applied, and a row for each recipe that could not be
    applied.
    """
    contenders: list[_Contender] = []
    failed: list[Measurement] = []
    for name, one in wanted:
        if isinstance(one, Variant) and one.work is not work:
            raise MeasureError(
                f"variant '{name}' was made from workload {one.work.name!r}; compare it with that "
                "one."
            )
        try:
            variant = apply(work, one) if isinstance(one, Recipe) else one
        except PaifuserError as error:
            steps = tuple(step.label for step in one.steps) if isinstance(one, Recipe) else ()
            failed.append(
                Measurement(
                    name=name, steps=steps, threads=thread_choices()[-1], failure=str(error)
                )
            )
        else:
            choices = (
                (variant.threads,)
                if variant.has_own_threads or work.device.type != "cpu"
                else thread_choices()
            )
            contenders += [
                _Contender(name, variant.model, variant.module, count, variant) for count in choices
            ]
    return contenders, failed


def _faster_of_each(contenders: list[_Contender], samples: dict[str, Samples]) -> list[_Contender]:
    """Of each name the number of threads that was faster, in the order in which the names came."""
    fastest: dict[str, _Contender] = {}
    for one in contenders:
        if (
            one.name not in fastest
            or samples[one.key].median_ms < samples[fastest[one.name].key].median_ms
        ):
            fastest[one.name] = one
    return list(fastest.values())


def _time(
    contenders: list[_Contender],
    work: Workload,
    rounds: int,
    seconds: float,
    should_stop: Callable[[], bool] | None,
    judge: Callable[[dict[str, Samples]], None],
) -> tuple[dict[str, Samples], bool]:
    """Take turns until the rounds, the seconds or somebody's patience end; every contender has been
    timed equally often.
    """
    samples: dict[str, Samples] = {}
    with ExitStack() as stack, progress("timing", rounds) as shown:
        for model in {id(one.model): one.model for one in contenders}.values():
            stack.enter_context(running(model))
        candidates = [
            Candidate(one.key, _call(one, work), one.threads, work.device) for one in contenders
        ]
        with keep_when_stopped(lambda: bool(samples)) as ending:
            for samples in rounds_in_turn(candidates, rounds=rounds, seconds=seconds):
                shown.advance(
                    doing=(
                        "fastest so far: "
                        f"{min(contenders, key=lambda one: samples[one.key].median_ms).name}"
                    )
                )
                judge(samples)
                stop_if_asked(should_stop)
    return samples, ending.is_stopped


def _call(one: _Contender, work: Workload) -> Callable[[], Any]:
    """A call on inputs of its own, so that a model which writes into its inputs disturbs only
    itself.
    """
    inputs, model = work.inputs.clone(), one.model
    return lambda: inputs(model)


def _row_while_patient(*parts: Any, with_metric: bool) -> tuple[Measurement, bool]:
    """A row, and whether it was interrupted: what was timed is worth more than the metrics still to
    come.
    """
    with keep_when_stopped():
        return _row_or_failure(*parts, with_metric=with_metric), False
    return _row_or_failure(*parts, with_metric=False), True


def _row_or_failure(
    one: _Contender,
    work: Workload,
    reference: Any,
    samples: dict[str, Samples],
    baseline: _Contender,
    *,
    with_metric: bool,
) -> Measurement:
    """A variant that fails on the test data, which may come in other shapes, leaves the other rows
    intact.
    """
    try:
        return _row(one, work, reference, samples, baseline, with_metric=with_metric)
    except Exception as error:
        if one.variant is None:
            raise
        steps = tuple(step.label for step in one.variant.recipe.steps)
        return Measurement(
            name=one.name,
            steps=steps,
            threads=one.threads,
            failure=f"{type(error).__name__}: {first_line(error)}",
        )


def _row(
    one: _Contender,
    work: Workload,
    reference: Any,
    samples: dict[str, Samples],
    baseline: _Contender,
    *,
    with_metric: bool,
) -> Measurement:
    timed = samples[one.key]
    speedup, interval = ratio_of_rounds(samples[baseline.key], timed)
    with running(one.model):
        answer = work.inputs.clone()(one.model)
        if one.variant is not None and (found := not_finite(reference, answer)):
            raise MeasureError(
                f"the answer holds {found}; choose a wider number format, or apply the recipe "
                "again."
            )
        relative, largest = output_error(reference, answer)
        peak = _peak(one, work)
    variant = one.variant
    return Measurement(
        name=one.name,
        steps=_labels(variant),
        threads=one.threads,
        latency_ms=timed.median_ms,
        best_ms=timed.best_ms,
        spread_ms=timed.spread_ms,
        cpu_ms=timed.median_cpu_ms,
        speedup=speedup,
        speedup_interval=interval,
        peak_bytes=peak,
        size_bytes=weights_bytes(one.module),
        parameters=parameter_count(one.module),
        flops=_flops(one, work),
        relative_error=relative,
        max_error=largest,
        metric=work.evaluate(one.model) if with_metric else None,
        build_s=variant.build_s if variant else None,
        weights_hash=weights_hash(one.module),
        notes=(
            *(variant.notes if variant else ()),
            *_verdict(interval, is_baseline=variant is None),
        ),
    )


def _peak(one: _Contender, work: Workload) -> int | None:
    """Weights, packed ones beside them, and the most that a call holds at once; an engine outside
    torch does not tell.
    """
    from ..engines.exported import Exported

    if isinstance(one.model, Exported):
        return None
    inputs = work.inputs.clone()
    return (
        weights_bytes(one.module)
        + packed_bytes(one.module)
        + peak_bytes(lambda: inputs(one.model), work.device)
    )


def _flops(one: _Contender, work: Workload) -> int:
    with running(one.module):
        return flops(one.module, lambda module: work.inputs.clone()(module))


def _verdict(interval: tuple[float, float], *, is_baseline: bool) -> tuple[str, ...]:
    """What did not get faster is said to be so."""
    low, high = interval
    if is_baseline or low > 1:
        return ()
    return (
        ("slower than the baseline",)
        if high < 1
        else ("no faster than the baseline, within the interval",)
    )
