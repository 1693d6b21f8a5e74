"""Compare a baseline with its variants: timed in turn, evaluated on the same data; and the session
options of ONNX Runtime on one model.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from dataclasses import replace
from typing import Any

import torch

from ..arguments import check_count, check_seconds, check_threads
from ..errors import ShouldStop, keep_when_stopped, stop_if_asked
from ..measure import MachineWatch, Samples, rounds_in_turn
from ..progress import progress
from ..records import Comparison, Measurement
from ..workload import Workload, running_in_turns, workload_of
from . import Variant
from .history import keep
from .limit import refusal
from .recipe import Recipe
from .trial import Threads, Timings, Trial

ROUNDS = 30
SECONDS = 30.0
MAX_ATTEMPTS = 3  # at a result that is not useless
ENGINE, ONE_THREAD = "onnxruntime", "one thread"
# one option is changed at a time; all of them at once would be a row for each combination
CHANGES: dict[str, dict[str, Any]] = {
    "default": {},
    "extended optimisation": {"optimization": "extended"},
    "basic optimisation": {"optimization": "basic"},
    "no optimisation": {"optimization": "none"},
    "parallel branches": {"parallel": True},
    "no arena": {"arena": False},
    "spinning threads": {"spin": True},
}

OnRound = Callable[[int, Comparison], None]


def compare(
    work: Workload,
    *variants: Variant | Recipe,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    metric: bool = True,
    threads: Threads = None,
    should_stop: ShouldStop | None = None,
    on_round: OnRound | None = None,
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
    requested = [*((_name_of(one), one) for one in variants), *named.items()]
    trial = Trial.of(work, requested, threads)

    def report(watch: MachineWatch, samples: dict[str, Samples]) -> None:
        if on_round is not None:
            timings = trial.timings(watch, samples)
            on_round(timings.rounds, trial.so_far(timings))
        stop_if_asked(should_stop)

    timings = _timed_until_useful(trial, rounds, seconds, report)
    rows: list[Measurement] = []
    baseline_metric: float | None = None
    is_judged = metric or work.metric is None or work.test is None  # else by the metric alone
    for contender in trial.shown(timings.samples):
        with_metric = metric and not timings.is_interrupted
        row, is_stopped = trial.row(contender, timings, with_metric=with_metric)
        timings = replace(timings, is_interrupted=timings.is_interrupted or is_stopped)
        baseline_metric = row.metric if contender is timings.baseline else baseline_metric
        reason = None
        is_complete = not row.failure and not timings.is_interrupted
        if contender.variant and is_judged and is_complete:
            with keep_when_stopped():  # the search for the layers at fault may be long
                reason = refusal(contender.variant, row, baseline_metric, should_stop)
        rows.append(row.model_copy(update={"refused": reason}))
    metric_name = work.metric_name if metric and work.test is not None else None
    compared = trial.comparison(timings, [*rows, *trial.failed], metric_name)
    keep(
        work,
        compared,
        {item.name: item.variant.recipe for item in trial.contenders if item.variant},
    )
    return compared


def screen(work: Workload, variants: Sequence[Variant], rounds: int) -> Comparison:
    """A few rounds of the baseline and variants in turn, for the latencies and output errors alone:
    what is far from the fastest need not be measured longer.
    """
    trial = Trial.of(work, [(_name_of(one), one) for one in variants], None)
    timings = _timed(trial, rounds, math.inf, lambda watch, samples: None)
    shown = trial.shown(timings.samples)
    return trial.comparison(timings, [trial.screened(contender, timings) for contender in shown])


def _name_of(variant: object) -> str:
    recipe = variant.recipe if isinstance(variant, Variant) else variant
    return recipe.label if isinstance(recipe, Recipe) else ""


Report = Callable[[MachineWatch, dict[str, Samples]], None]


def _timed_until_useful(trial: Trial, rounds: int, seconds: float, report: Report) -> Timings:
    """Time a trial; what came out useless is timed again while its seconds last. When interrupted,
    the attempt with the most rounds is kept.
    """
    until, attempts = time.perf_counter() + seconds, list[Timings]()
    with keep_when_stopped(lambda: bool(attempts)) as ending:
        for _ in range(MAX_ATTEMPTS):
            began = time.perf_counter()
            timings = _timed(trial, rounds, until - began, report)
            attempts.append(timings)
            took = time.perf_counter() - began
            is_useful = timings.is_interrupted or timings.quality.state != "unusable"
            if is_useful or time.perf_counter() + took > until:
                break
    if not (ending.is_stopped or attempts[-1].is_interrupted):
        return attempts[-1]
    longest = max(reversed(attempts), key=lambda attempt: attempt.rounds)
    return replace(longest, is_interrupted=True)


def _timed(trial: Trial, rounds: int, seconds: float, report: Report) -> Timings:
    """Time all of a trial in turn, equally often; other threads run models between the rounds."""
    watch, samples = MachineWatch(), dict[str, Samples]()
    with ExitStack() as stack, progress("timing", rounds) as shown:
        for model in {id(item.model): item.model for item in trial.timed}.values():
            stack.enter_context(running_in_turns(model))
        candidates = [item.candidate(trial.work) for item in trial.timed]
        with keep_when_stopped(lambda: bool(samples)) as ending:
            for samples in rounds_in_turn(
                candidates, rounds=rounds, seconds=seconds, turn=watch.turn
            ):
                best = min(trial.timed, key=lambda item: samples[item.key].median_ms)
                shown.advance(doing=f"fastest so far: {best.name}")
                report(watch, samples)
    timings = trial.timings(watch, samples, is_over=True)
    return replace(timings, is_interrupted=ending.is_stopped)


def compare_settings(
    work: Workload,
    recipe: Recipe | None = None,
    *,
    threads: int | None = None,
    rounds: int = ROUNDS,
    seconds: float = SECONDS,
    should_stop: ShouldStop | None = None,
) -> Comparison:
    """Time ONNX Runtime with each of its session options in turn, after the steps of `recipe`.

    `threads` is that of each session, by default torch's; one thread is compared, too. The options
    of the fastest row go into the step `backend`.
    """
    work = workload_of(work)
    recipe = recipe or Recipe()
    steps, limit = [step for step in recipe if step.kind != "backend"], recipe.limit
    count = threads or torch.get_num_threads()
    settings = {name: {"threads": count, **change} for name, change in CHANGES.items()}
    if count > 1:
        settings[ONE_THREAD] = {"threads": 1}
    recipes: dict[str, Any] = {
        name: Recipe([*steps, {"backend": {"name": ENGINE, **options}}], limit=limit)
        for name, options in settings.items()
    }
    return compare(
        work,
        rounds=rounds,
        seconds=seconds,
        threads=count,
        metric=False,
        should_stop=should_stop,
        **recipes,
    )


def options_of(row: Measurement) -> dict[str, Any]:
    """The options of the step `backend` that a row of `compare_settings` was timed with."""
    return {"name": ENGINE, "threads": row.threads, **CHANGES.get(row.name, {})}
