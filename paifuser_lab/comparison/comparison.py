"""Compare a baseline with its variants: timed in turn, evaluated on the same data."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any, Literal

from ..arguments import check_count, check_seconds, check_threads
from ..machine import machine_label
from ..measure import Candidate, MachineWatch, Samples, rounds_in_turn
from ..progress import progress
from ..recipe import Recipe
from ..records import Comparison, Measurement, Quality
from ..stopping import keep_when_stopped, stop_if_asked
from ..variant import Variant
from ..workload import Workload, running_in_turns, workload_of
from .contenders import (
    Contender,
    baselines_of,
    check_kinds,
    check_names,
    contenders_of,
    counts_of,
    faster_of_each,
    fastest_of,
    name_of,
)
from .limit import refusal
from .rows import interruptible_row, quality_of, rows_so_far

ROUNDS = 30
SECONDS = 30.0
MAX_ATTEMPTS = 3  # at a result that is not useless


def compare(
    work: Workload,
    *variants: Variant | Recipe,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    metric: bool = True,
    threads: int | Literal["each"] | None = None,
    should_stop: Callable[[], bool] | None = None,
    on_round: Callable[[int, Comparison], None] | None = None,
    **named: Variant | Recipe,
) -> Comparison:
    """Time the baseline and variants in turn and put them side by side.

    A model that fixes no number of threads runs with `threads`: by default the number that suits
    the unchanged model, which is chosen once for a workload. With "each", both one thread and all
    cores are tried on both sides: both baselines are shown, speed-ups are against the faster, and
    of a variant the faster is shown. A recipe is applied first; one that fails becomes a row with
    the reason. Ends after `rounds` or `seconds`; when interrupted, what was measured until then is
    kept. A result that says nothing, since the machine was too busy, is measured again within the
    seconds. `on_round` is called after each round with the number of rounds done and the latencies
    so far.
    """
    check_count("rounds", rounds)
    check_seconds(seconds)
    if threads != "each":
        check_threads(threads)
    work = workload_of(work)
    check_kinds(*variants, *named.values())
    output = work.output()
    counts = counts_of(work, threads)
    baselines = baselines_of(work, counts)
    requested = [*((name_of(variant), variant) for variant in variants), *named.items()]
    check_names([*(contender.name for contender in baselines), *(name for name, _ in requested)])
    contenders, failed = contenders_of(work, requested, counts)

    def report(watch: MachineWatch, samples: dict[str, Samples]) -> None:
        if on_round is not None:
            done = max(len(sample.rounds_ms) for sample in samples.values())
            fastest = fastest_of(baselines, samples)
            quality = quality_of(work, watch, samples, fastest, with_processes=False)
            on_round(done, rows_so_far(work, baselines, contenders, samples, quality))

    without_pools = [twin for item in contenders if (twin := item.without_pool) is not None]
    timed = [*baselines, *contenders, *without_pools]
    samples, quality, is_interrupted = _time_until_useful(
        timed, baselines, work, (rounds, seconds), should_stop, report
    )
    fastest = fastest_of(baselines, samples)
    rows: list[Measurement] = []
    baseline_metric: float | None = None
    for contender in (*baselines, *faster_of_each(contenders, samples)):
        row, is_stopped = interruptible_row(
            contender,
            work,
            output,
            samples,
            fastest,
            quality,
            with_metric=metric and not is_interrupted,
        )
        baseline_metric = row.metric if contender is fastest else baseline_metric
        is_interrupted |= is_stopped
        reason = None
        if contender.variant and not row.failure and not is_interrupted:
            with keep_when_stopped():  # the search for the layers at fault may be long
                reason = refusal(contender.variant, row, baseline_metric, should_stop)
        rows.append(row.model_copy(update={"refused": reason}))
    return Comparison(
        workload=work.name,
        machine=machine_label(),
        baseline=fastest.name,
        metric_name=work.metric_name if metric and work.test is not None else None,
        rounds=max(len(sample.rounds_ms) for sample in samples.values()),
        is_interrupted=is_interrupted,
        quality=quality,
        rows=(*rows, *failed),
    )


def _time_until_useful(
    contenders: list[Contender],
    baselines: list[Contender],
    work: Workload,
    limits: tuple[int, float],
    should_stop: Callable[[], bool] | None,
    report: Callable[[MachineWatch, dict[str, Samples]], None],
) -> tuple[dict[str, Samples], Quality, bool]:
    """Time the contenders; what came out useless is timed again while its seconds last."""
    rounds, seconds = limits
    until = time.perf_counter() + seconds
    for _ in range(MAX_ATTEMPTS):
        watch, began = MachineWatch(), time.perf_counter()
        samples, is_stopped = _time(
            contenders,
            work,
            (rounds, until - began),
            watch.turn,
            should_stop,
            partial(report, watch),
        )
        quality = quality_of(work, watch, samples, fastest_of(baselines, samples))
        took = time.perf_counter() - began
        if is_stopped or quality.state != "unusable" or time.perf_counter() + took > until:
            break
    return samples, quality, is_stopped


def _time(
    contenders: list[Contender],
    work: Workload,
    limits: tuple[int, float],
    turn: Callable[[], AbstractContextManager[object]],
    should_stop: Callable[[], bool] | None,
    report: Callable[[dict[str, Samples]], None],
) -> tuple[dict[str, Samples], bool]:
    """Time the contenders in turn until the rounds or seconds end or the user stops; each is timed
    equally often. Other threads run models between the rounds.
    """
    rounds, seconds = limits
    samples: dict[str, Samples] = {}
    with ExitStack() as stack, progress("timing", rounds) as shown:
        for model in {id(item.model): item.model for item in contenders}.values():
            stack.enter_context(running_in_turns(model))
        candidates = [
            Candidate(item.key, _call(item, work), item.threads, work.device, item.around)
            for item in contenders
        ]
        with keep_when_stopped(lambda: bool(samples)) as ending:
            for samples in rounds_in_turn(candidates, rounds=rounds, seconds=seconds, turn=turn):
                shown.advance(
                    doing=(
                        "fastest so far: "
                        f"{min(contenders, key=lambda item: samples[item.key].median_ms).name}"
                    )
                )
                report(samples)
                stop_if_asked(should_stop)
    return samples, ending.is_stopped


def _call(contender: Contender, work: Workload) -> Callable[[], Any]:
    """A call on its own copy of the inputs, since a model may write into them."""
    inputs, model = work.inputs.clone(), contender.model
    return lambda: inputs(model)
