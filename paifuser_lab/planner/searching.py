"""The search for the best recipe within limits: tables first, then measured candidates.

Each part that a recipe may consist of is measured alone, in turn with the unchanged model, in a few
rounds. From these and the profile every combination is predicted. After half of the time those that
should be the fastest are measured; after all parts, for a ladder of speed-ups, that of the least
loss, then those that Optuna expects most from, and none whose prediction is sure to lose. The
leaders are timed together in more rounds and judged on the half of the test data that the search
has not seen.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Generator, Iterable, Iterator, Mapping
from concurrent.futures import FIRST_COMPLETED, Future, wait
from dataclasses import dataclass, field, replace
from typing import Any

from ..errors import (
    FileError,
    MeasureError,
    PaifuserError,
    ShouldStop,
    first_line,
    keep_when_stopped,
)
from ..machine import hardware, machine_label
from ..records import Candidate, Comparison, Measurement, Profile, SearchGoal, counted
from ..variant import Variant, apply_as_timed
from ..variant.cache import keep
from ..variant.recipe import Recipe
from ..workload import Workload, workload_of
from ..workload.data import Same
from .contributions import contributions_of
from .halves import Judge, blind_spot, halves_of
from .places import Here, RayNodes
from .predict import Predictor, expectations, in_order, parts_of
from .ranking import EXACT, WIDE_OPEN, Options, is_better, nearest, past, ranked, with_status
from .result import SearchResult, targets_of
from .screening import Screen, Screened
from .space import Point, Space, allowed_engines
from .store import QUEUED, Study, about_of

LEADER_ROUNDS = 20
SCREEN_SHARE = 0.75  # of the seconds; the leaders have the rest
PARTS_SHARE = 0.5  # of the seconds, after which the first combinations are measured
LEADER_SHARE = 0.7  # of what is left then; what each step of the best contributes has the rest
LEADERS = 3
MOST_TRIALS = 100
ASKED = (1.5, 2.0, 3.0, 4.0)  # the speed-ups whose predicted best is measured
POLL_S = 0.5  # between looks at whether the search is stopped
ATTEMPTS = 30  # at a suggestion that is neither measured yet nor sure to lose
# the points to measure, by the space and by what was measured so far
Order = Callable[[Space, Mapping[Point, Candidate]], Iterable[Point]]


def search(
    work: Workload,
    *,
    goal: SearchGoal = "latency",
    metric_drop: float = 0.01,
    limits: Mapping[str, float] | None = None,
    seconds: float = 120.0,
    may_train: bool = False,
    engines: Iterable[str] | None = None,
    study: str | None = None,
    workers: str | None = None,
    profile: Profile | None = None,
    should_stop: ShouldStop | None = None,
) -> SearchResult:
    """Find the best recipe within the limits: engine, formats, width and memory together.

    `goal` is what is made small (latency, size, memory) or large (throughput). `metric_drop` is the
    loss of the metric that is allowed; without labelled data, the relative error of the output.
    `limits` bounds what else a recipe may need: latency_ms, size_bytes, peak_bytes, output_error.
    All of it ends after `seconds`, or when stopped, with what was measured. `study` is a database,
    such as "sqlite:///searches.db": a search of the same workload, inputs and goal goes on from it.
    `workers` is the address of a Ray cluster, such as "auto": its machines of this one's kind of
    processor measure a candidate each, and this one measures the leaders.
    `result.best` is the recipe; it has no steps where nothing is clearly better than the model, if
    that is within the limits.
    """
    *_, last = searches(
        work,
        goal=goal,
        metric_drop=metric_drop,
        limits=limits,
        seconds=seconds,
        may_train=may_train,
        engines=engines,
        study=study,
        workers=workers,
        profile=profile,
        should_stop=should_stop,
    )
    return last


def searches(
    work: Workload,
    *,
    goal: SearchGoal = "latency",
    metric_drop: float = 0.01,
    limits: Mapping[str, float] | None = None,
    seconds: float = 60.0,
    may_train: bool = False,
    engines: Iterable[str] | None = None,
    study: str | None = None,
    workers: str | None = None,
    profile: Profile | None = None,
    should_stop: ShouldStop | None = None,
    order: Order | None = None,
    seed: int = 0,
) -> Iterator[SearchResult]:
    """The search so far, after each measurement; `order` replaces its choice of points."""
    began = time.perf_counter()  # what is measured of the machine for the first time counts, too
    work = workload_of(work)
    facts = {"can_train": work.train is not None, "smaller_is_better": work.smaller_is_better}
    options = Options(goal, metric_drop, may_train, seconds, limits=dict(limits or {}), **facts)
    options.check(work)
    space = Space.of(work, hardware(), allowed_engines(engines), may_train=may_train)
    trials = Study.open(study, about_of(work, goal, study), space.axes, seed)
    space = replace(space, axes=trials.axes)
    return _Search(work, options, space, trials, profile, should_stop, began, order, workers).run()


@dataclass
class _Search:
    work: Workload
    options: Options
    space: Space
    study: Study
    profile: Profile | None
    asked: ShouldStop | None
    began: float
    order: Order | None = None
    workers: str | None = None
    rows: dict[Point, Candidate] = field(default_factory=dict)
    running: dict[Future[Screened | None], tuple[Any, Point]] = field(default_factory=dict)
    variants: dict[Point, Variant] = field(default_factory=dict)
    measured: Comparison | None = None
    skipped: int = 0
    planned: int = 0
    notes: list[str] = field(default_factory=list)
    unjudged: set[Point] = field(default_factory=set)  # by the half that chose none
    leaders: set[str] = field(default_factory=set)  # the labels of those that were timed together
    is_stopped: bool = False

    @property
    def took_s(self) -> float:
        return time.perf_counter() - self.began

    @property
    def baseline(self) -> Measurement | None:
        """The unchanged model, as it was timed last."""
        return self.measured[self.measured.baseline] if self.measured else None

    def run(self) -> Iterator[SearchResult]:
        """Measure the parts, then combinations, then the leaders again."""
        self.seen, self.unseen, note = halves_of(self.work.for_trials())
        self.notes = [*filter(None, (note, blind_spot(self.seen, self.options.metric_drop)))]
        self.screen = Screen(self.seen, self.options.goal)
        self.judges = Judge(self.unseen) if self.unseen is not self.seen else self.screen.judge
        _ = self.screen.judge.before  # one that is NaN is refused before anything is timed
        self.predict = Predictor(expectations(self.space, self.profile))
        for point, row in self.study.finished.items():
            self._take(point, row)
        self.planned = len(self.space.singles())
        self.places: Here | RayNodes = (
            Here(self.screen, self._is_over)
            if self.workers is None
            else RayNodes(self.workers, self.screen)
        )
        yield self._record()
        with keep_when_stopped() as ending:
            try:
                with self.places:
                    yield from self._trials()
            finally:  # what was under way when it was stopped
                for trial, _ in self.running.values():
                    self.study.drop(trial)
            if not self.is_stopped:
                yield from self._leaders()
            if not self.is_stopped:
                self._take_apart()
        self.is_stopped |= ending.is_stopped
        self._hand_over()
        yield self._record(is_done=True)

    def _trials(self) -> Iterator[SearchResult]:
        """Measure the parts, then combinations; without a disk for the study, as far as it went."""
        try:
            if self.order is not None:
                yield from self._queued(self.order(self.space, self.rows))
                return
            changes = in_order(self.space.singles(), self.options.goal, self.predict.left)
            parts = (change.point for change in changes)
            yield from self._queued(parts, PARTS_SHARE)
            yield from self._queued(self._fastest())
            yield from self._queued(parts)
            yield from self._queued(self._ladder())
            yield from self._suggested()
        except FileError as error:
            if not self.rows:
                raise
            self.notes.append(f"ended early, and only this result has its last trial: {error}")
        except MeasureError as error:  # the machines have left
            if not self.rows:
                raise
            self.notes.append(f"ended early: {error}")

    def _is_over(self, share: float = 1.0) -> bool:
        self.is_stopped |= self.asked is not None and self.asked()
        # one candidate is measured however short the time
        return self.is_stopped or (bool(self.rows) and self.took_s > share * self.options.seconds)

    def _is_screened(self, share: float = SCREEN_SHARE) -> bool:
        return self._is_over(share) or len(self.rows) >= MOST_TRIALS

    def _queued(
        self, points: Iterable[Point], share: float = SCREEN_SHARE
    ) -> Iterator[SearchResult]:
        """Measure these points, but those that were measured or that another process is at, until
        a share of the seconds is over; what it has not taken is left.
        """
        points = iter(points)
        while not self._is_screened(share) and (point := next(points, None)) is not None:
            if point in self.rows or point in self.study.begun:
                continue
            self.study.queue(point)
            yield from self._next()
        yield from self._finished(all_of_them=True)

    def _ladder(self) -> list[Point]:
        """For each speed-up of the ladder the point of least predicted loss that reaches it."""
        predicted = {point: self.predict(point) for point in self._open()}
        chosen = []
        for asked in ASKED:
            reaching = [point for point, each in predicted.items() if each.ratio <= 1 / asked]
            if reaching:
                chosen.append(min(reaching, key=lambda p: (predicted[p].loss, predicted[p].ratio)))
        return list(dict.fromkeys([*chosen, *self._fastest()]))

    def _fastest(self) -> list[Point]:
        """Combinations of measured parts that should be faster than all that is measured, and lose
        no more than is allowed.
        """
        if self.options.goal != "latency":
            return []
        known = self.predict.ratios.keys()
        predicted = {p: self.predict(p) for p in self._open() if known >= {*parts_of(p)}}
        inside = [
            point
            for point, each in predicted.items()
            if each.loss <= self.options.metric_drop and each.ratio < self._best_ratio()
        ]
        return sorted(inside, key=lambda point: predicted[point].ratio)[:2]

    def _open(self) -> list[Point]:
        """The points that are neither measured nor sure to lose; the others are counted."""
        waiting = [point for point in self.space.points() if point not in self.rows]
        hopeful = [point for point in waiting if not self._is_hopeless(point)]
        self.skipped = len(waiting) - len(hopeful)
        return hopeful

    def _is_hopeless(self, point: Point) -> bool:
        """Whether it is sure to be worse than what is measured, or to lose too much."""
        predicted = self.predict(point)
        loses = predicted.loss > 2 * max(self.options.metric_drop, EXACT) and not point.is_trained
        is_refused = any(
            self.rows[part].status == "refused"
            for part in (Point(engine=point.engine, format=point.format), Point(keep=point.keep))
            if part in self.rows
        )
        return loses or is_refused or predicted.best > self._best_ratio()

    def _best_ratio(self) -> float:
        values = [self._ratio(row) for row in self._ranked(is_guarded=False) if row.rank]
        return min((value for value in values if value is not None), default=1.0)

    def _suggested(self) -> Iterator[SearchResult]:
        """Measure what Optuna expects most from, until the time is over or nothing is left."""
        while not self._is_screened() and self._open():
            if not (yield from self._next()):
                break
        yield from self._finished(all_of_them=True)

    def _next(self) -> Generator[SearchResult, None, bool]:
        """Begin the study's next point that is neither measured nor sure to lose, if any is."""
        taken = {*self.rows, *(point for _, point in self.running.values())}
        for _ in range(ATTEMPTS):
            trial, point = self.study.ask()
            is_queued = QUEUED in trial.user_attrs
            is_new = point not in taken and self.space.is_possible(point)
            if is_new and (is_queued or not self._is_hopeless(point)):
                break
            self.study.drop(trial)
        else:
            return False
        change, left = self.space.change(point), max(0.5, self.options.seconds - self.took_s)
        seconds = min(left, SCREEN_SHARE * self.options.seconds / max(self.planned, 1))
        try:
            begun = self.places.begin(change, 1 / self.predict(point).ratio, seconds, left)
        except MeasureError:  # no machine is left
            self.study.drop(trial)
            raise
        self.running[begun] = trial, point
        yield from self._finished()
        return True

    def _finished(self, *, all_of_them: bool = False) -> Iterator[SearchResult]:
        """Take what was measured, once every place is at work, or until none is."""
        while self.running and (all_of_them or len(self.running) >= self.places.count):
            ended, _ = wait(self.running, POLL_S, FIRST_COMPLETED)
            for future in ended:
                yield from self._ended(future)
            if self.asked is not None and self.asked():
                self.is_stopped = True
                return

    def _ended(self, future: Future[Screened | None]) -> Iterator[SearchResult]:
        trial, point = self.running.pop(future)
        if (screened := future.result()) is None:  # stopped, or its machine left
            self.study.drop(trial)
            if not self._is_over():
                self.study.queue(point)
            return
        row = screened.row.model_copy(update={"at_s": self.took_s})
        self.measured = self.measured or screened.compared
        if screened.variant is not None:
            self.variants[point] = screened.variant
        self._take(point, row)
        self._heed(screened.compared)
        self.study.tell(trial, row, self._values(row), self.options.metric_drop)
        self.variants = {k: self.variants[k] for k in self._leading() if k in self.variants}
        yield self._record()

    def _heed(self, compared: Comparison | None) -> None:
        """Stop where Ctrl-C ended a comparison, which keeps its rounds; so do time and `asked`."""
        if compared is not None and compared.is_interrupted and not self._is_over():
            self.is_stopped = True

    def _take(self, point: Point, row: Candidate) -> None:
        self.rows[point] = row
        if (values := self._values(row)) is not None:
            self.predict.learn(point, *values)

    def _values(self, row: Candidate) -> tuple[float, float] | None:
        """The ratio of the goal to that of the unchanged model, and the loss."""
        ratio = self._ratio(row)
        if row.status == "refused" or ratio is None or not math.isfinite(loss := row.loss or 0.0):
            return None
        return ratio, loss

    def _ratio(self, row: Candidate) -> float | None:
        value = row.value(self.options.goal)
        if value is None or self.options.goal in ("latency", "throughput"):
            return value
        field_ = "size_bytes" if self.options.goal == "size" else "peak_bytes"
        before = getattr(self.baseline, field_, None)
        return value / before if before else None

    def _leading(self, *, is_guarded: bool = False) -> list[Point]:
        """The best candidates, and the best that keeps the output: the others must beat that.
        Unguarded by what few rounds gave: more rounds may show that one is clearly better.
        """
        by_label = {row.label: point for point, row in self.rows.items()}
        points = [by_label[row.label] for row in self._ranked(is_guarded=is_guarded) if row.rank]
        exact = [point for point in points if (self.rows[point].loss or 0.0) <= EXACT]
        return list(dict.fromkeys([*points[:LEADERS], *exact[:1]]))

    def _leaders(self) -> Iterator[SearchResult]:
        """Time the best candidates together in more rounds, and judge them on unseen data."""
        points = [point for point in self._leading() if self._held(point)]
        if not points or self._is_over():
            return
        labels = {self.rows[point].label: point for point in points}
        left = max(0.5, self.options.seconds - self.took_s)
        variants = {label: self.variants[point] for label, point in labels.items()}
        compared = self.screen.compared(variants, LEADER_ROUNDS, LEADER_SHARE * left, self._is_over)
        for label, point in labels.items():
            if (timed := compared[label]).failure is None:
                self.rows[point] = self.screen.candidate(self.rows[point], timed, compared)
                self.leaders.add(label)
        self.measured = compared
        self._heed(compared)
        yield self._record()
        if self.judges is not self.screen.judge:
            self.unjudged = {each for each, row in self.rows.items() if (row.loss or 0) > EXACT}
        for point in points:
            if self._is_over():
                break
            self.unjudged.discard(point)
            try:
                self.rows[point] = self.judges.judged(self.rows[point], self.variants[point])
            except PaifuserError as error:
                refused = {"status": "refused", "reason": first_line(error)}
                self.rows[point] = self.rows[point].model_copy(update=refused)

    def _take_apart(self) -> None:
        """Measure what each step of the best contributes, in the seconds that are left."""
        point, goal = next(iter(self._leading(is_guarded=True)), None), self.options.goal
        if point not in self.variants or not is_better(self.rows[point], goal):
            return
        parts = contributions_of(
            self.screen.timed,
            self.variants[point],
            goal,
            rounds=LEADER_ROUNDS,
            seconds=self.options.seconds - self.took_s,
            should_stop=self._is_over,
        )
        self.rows[point] = self.rows[point].model_copy(update={"contributions": parts})

    def _held(self, point: Point) -> bool:
        """Whether its model is here; one of an earlier search is made again."""
        if point in self.variants:
            return True
        recipe = Recipe(self.space.steps(point), workload=self.work.name, limit=WIDE_OPEN)
        try:
            self.variants[point] = apply_as_timed(
                self.screen.timed, recipe, should_stop=self._is_over
            )
        except PaifuserError:
            return False
        return True

    def _hand_over(self) -> None:
        """Give the leaders' models to the workload's cache, but those that may have read half of
        the test data, of which `apply` reads all.
        """
        is_half = self.work.train is None and self.seen.test is not self.work.test
        leaders = {variant.recipe.digest for variant in self.variants.values()}
        for (model, data, loss), variant in self.seen.variants.items():
            is_exact = all(step.allowed_error is not None for step in variant.recipe)
            if variant.recipe.digest in leaders and (is_exact or not is_half):
                read = Same(self.work.test) if is_half else data
                keep(self.work.variants, (model, read, loss), replace(variant, work=self.work))

    def _ranked(self, *, is_guarded: bool = True) -> tuple[Candidate, ...]:
        options, base, unseen = self.options, self.baseline, self.unjudged
        ms = base.latency_ms if base else None  # limits are of the ms that are shown
        every = ((p, row.with_baseline(ms) if ms else row) for p, row in self.rows.items())
        rows = [with_status(row, options, base, is_judged=p not in unseen) for p, row in every]
        return ranked(rows, options.goal, is_guarded=is_guarded, leaders=self.leaders)

    def _record(self, *, is_done: bool = False) -> SearchResult:
        base, options, rows = self.baseline, self.options, self._ranked()
        must_change = base is not None and bool(past(base, options))
        record = SearchResult(
            workload=self.work.name,
            loaded_as=self.work.loaded_as,
            goal=options.goal,
            metric_drop=options.metric_drop,
            may_train=options.may_train,
            seconds=options.seconds,
            took_s=self.took_s,
            machine=machine_label(),
            batch=None if self.screen.timed is self.seen else self.screen.batch,
            metric_name=self.work.metric_name if self.work.test is not None else None,
            smaller_is_better=options.smaller_is_better,
            planned=max(self.planned, len(rows)),
            is_done=is_done,
            is_interrupted=is_done and self.is_stopped,
            note=self._note() if is_done else "",
            quality=self.measured.quality if self.measured else None,
            baseline_ms=base.latency_ms if base else None,
            baseline_size_bytes=base.size_bytes if base else None,
            baseline_peak_bytes=base.peak_bytes if base else None,
            rows=rows,
            skipped=self.skipped,
            study=self.study.study.study_name,
            importance=self.study.importance if is_done else {},
            reason=nearest(rows, options, must_change=must_change) if is_done else "",
            must_change=must_change,
        )
        return record.model_copy(update={"targets": targets_of(record, ASKED)})

    def _note(self) -> str:
        """What the seconds did not suffice for, and what was skipped."""
        missing = self.planned - sum(change.point in self.rows for change in self.space.singles())
        why = "the search was stopped" if self.is_stopped else "the seconds were over"
        allowed, took = self.options.seconds, self.took_s
        late = f"it took {took:.0f} s instead of {allowed:g}, since the last candidate had begun"
        parts = {
            f"{counted(missing, 'candidate')} not measured: {why}": missing,
            f"{counted(self.skipped, 'combination')} skipped: by prediction they lose": (
                self.skipped
            ),
            late: took > 1.1 * allowed + 1,
        }
        return "; ".join([*self.notes, *(part for part, holds in parts.items() if holds)])
