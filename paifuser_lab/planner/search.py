"""Search for a faster or smaller model: measure candidates, rank those within the limits.

Each candidate is applied and timed in turn with the unchanged model, first in a few rounds; the
leaders are then timed together in more rounds. `faster` yields the ranking after each.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

from ..comparison import compare
from ..engines import available_engines
from ..errors import MeasureError, PaifuserError, StoppedError, first_line
from ..machine import hardware
from ..profiler.expected import expected_of
from ..recipe import Recipe
from ..records import (
    Candidate,
    Candidates,
    Comparison,
    Measurement,
    Profile,
    SearchGoal,
    counted,
)
from ..stopping import ShouldStop
from ..variant import Variant, apply_as_timed
from ..variant.cache import keep
from ..workload import Workload, workload_of
from ..workload.batching import example_batch, repeated
from .candidates import WIDE_OPEN, Change, changes_for
from .ranking import EXACT, Options, ranked, with_status

SCREEN_ROUNDS, LEADER_ROUNDS = 5, 20
SCREEN_SHARE = 0.7  # of the seconds; the leaders have the rest
LEADERS = 3
THROUGHPUT_BATCH = 8  # times the example's batch


def faster(
    work: Workload,
    *,
    goal: SearchGoal = "latency",
    metric_drop: float = 0.01,
    may_train: bool = False,
    seconds: float = 60.0,
    profile: Profile | None = None,
    should_stop: ShouldStop | None = None,
) -> Iterator[Candidates]:
    """The candidates measured so far, best first, after each measurement.

    `goal` is what is made small (or, for throughput, large); `metric_drop` the loss of the metric
    that is allowed, without labelled data the relative error of the output. What a `profile` of the
    model predicts most of is tried first. When `seconds` are over, what was not measured is named
    in the note.
    """
    work = workload_of(work)
    options = Options(goal, metric_drop, may_train, seconds, can_train=work.train is not None)
    options.check(work)
    changes = changes_for(work, hardware(), may_train=may_train, engines=available_engines())
    return _Search(work, options, _in_order(changes, goal, profile), should_stop).run()


def _in_order(changes: list[Change], goal: str, profile: Profile | None) -> list[Change]:
    """What is for the goal first, what takes long to build last; then what is expected to leave
    least of the time, where a profile tells.
    """
    is_small = goal in ("size", "memory")
    left = {} if profile is None else {repr(e.kind.step): e.left_ms for e in expected_of(profile)}

    def key(change: Change) -> tuple[bool, bool, float]:
        known = [left[text] for step in change.steps if (text := repr(step)) in left]
        return is_small and not change.is_smaller, change.is_slow, min(known, default=math.inf)

    return sorted(changes, key=key)


@dataclass
class _Search:
    work: Workload
    options: Options
    changes: list[Change]
    asked: ShouldStop | None
    began: float = field(default_factory=time.perf_counter)
    rows: dict[str, Candidate] = field(default_factory=dict)
    variants: dict[str, Variant] = field(default_factory=dict)
    measured: Comparison | None = None
    baseline_metric: float | None = None
    batch: int | None = None
    is_stopped: bool = False
    trial: Workload = field(init=False)

    @property
    def took_s(self) -> float:
        return time.perf_counter() - self.began

    def run(self) -> Iterator[Candidates]:
        """Screen every change, then time the leaders again."""
        self.trial = self.work.for_trials()
        timed = self._timed_work()
        yield self._record()
        for change in self.changes:
            if self._is_over(SCREEN_SHARE):
                break
            if (row := self._screened(timed, change)) is not None:
                self.rows[change.label] = row
                self.variants = {label: self.variants[label] for label in self._leading()}
            yield self._record()
        if not self.is_stopped:
            yield from self._leaders(timed)
        self._hand_over()
        yield self._record(is_done=True)

    def _is_over(self, share: float = 1.0) -> bool:
        self.is_stopped |= self.asked is not None and self.asked()
        return self.is_stopped or self.took_s > share * self.options.seconds

    def _timed_work(self) -> Workload:
        """The workload, for throughput with a larger batch where the model runs with one."""
        if self.options.goal != "throughput":
            return self.trial
        try:
            example = example_batch(self.work)
            larger = self.work.copied()
            larger.inputs = repeated(self.work.inputs, example, THROUGHPUT_BATCH * example)
            larger.output()
        except PaifuserError:  # a model of one batch size
            return self.trial
        self.batch = THROUGHPUT_BATCH * example
        return larger

    def _screened(self, work: Workload, change: Change) -> Candidate | None:
        """A change applied and timed in a few rounds; None if it was stopped before that."""
        refused = Candidate(
            label=change.label, steps=change.steps, why=change.why, status="refused"
        )
        try:
            recipe = Recipe(change.steps, workload=work.name, limit=WIDE_OPEN)
            variant = apply_as_timed(work, recipe, should_stop=self._is_over)
            row, compared = self._compared(work, {change.label: variant}, SCREEN_ROUNDS)
            if row.failure:
                return refused.model_copy(update={"reason": row.failure})
            candidate = self._candidate(refused, row, compared)
            if (candidate.relative_error or 0.0) > EXACT:
                candidate = self._with_metric(candidate, variant)
        except StoppedError:
            return None
        except PaifuserError as error:
            return refused.model_copy(update={"reason": first_line(error)})
        self.variants[change.label] = variant
        self.measured = self.measured or compared
        return candidate

    def _leading(self) -> list[str]:
        """The best candidates whose models are held, which can be timed again."""
        held = (row for row in self._ranked() if row.label in self.variants)
        return [row.label for row in held if row.rank is not None][:LEADERS]

    def _compared(
        self, work: Workload, variants: dict[str, Any], rounds: int
    ) -> tuple[Measurement, Comparison]:
        """The first variant's row, and the comparison; quality and limits are decided here."""
        left = max(0.5, self.options.seconds - self.took_s)
        seconds = min(left, SCREEN_SHARE * self.options.seconds / len(self.changes))
        compared = compare(
            work,
            rounds=rounds,
            seconds=left if rounds > SCREEN_ROUNDS else seconds,
            metric=False,
            should_stop=self._is_over,
            **variants,
        )
        return compared[next(iter(variants))], compared

    def _candidate(self, row: Candidate, timed: Measurement, compared: Comparison) -> Candidate:
        verdict = compared.verdict(timed)
        batch = self.batch or _batch(self.work)
        per_second = 1e3 * batch / timed.latency_ms if batch and timed.latency_ms else None
        return row.model_copy(
            update={
                "status": "measured",
                "latency_ms": timed.latency_ms,
                "before_ms": compared[compared.baseline].latency_ms,
                "speedup": timed.speedup,
                "interval": timed.speedup_interval,
                "word": verdict.word,
                "tone": verdict.tone,
                "sentence": verdict.sentence,
                "per_second": per_second,
                "relative_error": timed.relative_error,
                "size_bytes": timed.size_bytes,
                "peak_bytes": timed.peak_bytes,
                "rounds": compared.rounds,
            }
        )

    def _with_metric(self, row: Candidate, variant: Variant) -> Candidate:
        """The row with its metric and the loss of it; unchanged without labelled data."""
        if self.work.metric is None or self.work.test is None:
            return row
        if self.baseline_metric is None:
            self.baseline_metric = self.work.evaluate()
        metric, before = self.work.evaluate(variant.model), self.baseline_metric
        if metric is None or before is None:
            return row
        return row.model_copy(update={"metric": metric, "metric_lost": before - metric})

    def _leaders(self, work: Workload) -> Iterator[Candidates]:
        """Time the best candidates together in more rounds, and evaluate them."""
        best = self._leading()
        if not best or self._is_over():
            return
        _, compared = self._compared(
            work, {label: self.variants[label] for label in best}, LEADER_ROUNDS
        )
        for label in best:
            if compared[label].failure is None:
                self.rows[label] = self._candidate(self.rows[label], compared[label], compared)
        self.measured = compared
        yield self._record()
        for label in best:
            row = self.rows[label]
            if row.metric is not None or self._is_over():
                continue
            try:
                self.rows[label] = self._with_metric(row, self.variants[label])
            except PaifuserError as error:
                refused = {"status": "refused", "reason": first_line(error)}
                self.rows[label] = row.model_copy(update=refused)

    def _hand_over(self) -> None:
        """Give the leaders' models to the workload's cache, so that one is applied at once."""
        leaders = {self.variants[label].recipe.digest for label in self._leading()}
        for key, variant in self.trial.variants.items():
            if variant.recipe.digest in leaders:
                keep(self.work.variants, key, replace(variant, work=self.work))

    def _ranked(self) -> tuple[Candidate, ...]:
        base = self.measured[self.measured.baseline] if self.measured else None
        return ranked(
            [with_status(row, self.options, base) for row in self.rows.values()], self.options.goal
        )

    def _record(self, *, is_done: bool = False) -> Candidates:
        base = self.measured[self.measured.baseline] if self.measured else None
        options = self.options
        record = Candidates(
            workload=self.work.name,
            goal=options.goal,
            metric_drop=options.metric_drop,
            may_train=options.may_train,
            seconds=options.seconds,
            took_s=self.took_s,
            machine=hardware().label,
            batch=self.batch,
            metric_name=self.work.metric_name if self.baseline_metric is not None else None,
            planned=len(self.changes),
            is_done=is_done,
            is_interrupted=is_done and self.is_stopped,
            note=self._note() if is_done else "",
            quality=self.measured.quality if self.measured else None,
            baseline_ms=base.latency_ms if base else None,
            baseline_size_bytes=base.size_bytes if base else None,
            baseline_peak_bytes=base.peak_bytes if base else None,
            rows=self._ranked(),
        )
        return record.with_baseline(base.latency_ms) if base and base.latency_ms else record

    def _note(self) -> str:
        """What the seconds did not suffice for."""
        missing = len(self.changes) - len(self.rows)
        why = "the search was stopped" if self.is_stopped else "the seconds were over"
        allowed, took = self.options.seconds, self.took_s
        parts = [
            f"{counted(missing, 'candidate')} not measured: {why}" if missing else "",
            f"it took {took:.0f} s instead of {allowed:g}, since the last candidate had begun"
            if took > 1.1 * allowed + 1
            else "",
        ]
        return "; ".join(part for part in parts if part)


def _batch(work: Workload) -> int | None:
    try:
        return example_batch(work)
    except MeasureError:
        return None
