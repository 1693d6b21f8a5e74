"""The jobs of a session's worker: apply a recipe, measure it, profile it, or run a query.

The worker is a thread that lives while there are jobs: an idle session has none, and is collected
when nothing refers to it. The methods run under the lock, or in the worker.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

from ..comparison import compare
from ..errors import StoppedError
from ..machine import threads
from ..measure import faster_threads
from ..profiler import profile
from ..profiler.recording import wake_profiler
from ..recipe import Recipe
from ..records import Comparison
from ..variant import Variant, apply, kept_variant
from ..workload import Workload, workload_of
from .first_profile import keep_profile
from .kept import SessionRecords
from .queries import QUERIES, QueryContext
from .quiet import QUIET_SAMPLES, wait_until_quiet
from .state import Refused, State, known_records
from .tried import measured_row
from .worker import each_second, error_message

ROUNDS = 30
SECONDS = 10.0
QUICK_ROUNDS, QUICK_S = 5, 1.0  # for the first figure
PROFILE_S = 2.0  # for the timed runs of a profile
NEVER_QUIET = (
    "The machine did not become quiet within two minutes: others took up to {share:.0%} of the "
    "cores in the last seconds; close some and wait again, or measure as it is."
)


class SessionJobs(SessionRecords):
    """A session's recipe and jobs, without the methods that a caller uses."""

    def __init__(self, work: Workload, *, rounds: int = ROUNDS, seconds: float = SECONDS) -> None:
        self.work = work = workload_of(work)
        self._own = work.copied()  # what the worker runs: the original may be trained in a cell
        self.rounds, self.seconds = rounds, seconds
        self._version = 0  # of the last choice; work on an older version stops
        self._is_again = False  # to be measured though it was; the known figures stay until then
        self._is_waiting = False  # for a quiet machine, to measure again
        self._has_choice = True  # to apply and measure; the unchanged model comes first
        # the queries to run: seconds and options of each
        self._queries: dict[str, tuple[float, dict[str, Any]]] = {}
        super().__init__(work)
        wake_profiler()
        with self._lock:
            self._start()

    @property
    def _has_jobs(self) -> bool:
        return self._has_choice or bool(self._queries)

    def _request_update(self, *, again: bool = False, when_quiet: bool = False) -> None:
        """Show what is known of the current recipe at once, and start the worker for the rest."""
        recipe = self._history.current
        self._version += 1
        self._has_choice, self._is_again, self._is_waiting = True, again, when_quiet
        known = self._measured_within(recipe)
        self._set(
            State(
                recipe,
                self._kept_variant(recipe),
                known,
                self._baseline,
                self._current_profile,
                **known_records(self._records),
                status="waiting" if self._is_waiting else "applying",  # as the worker will
                others=self._load.shares,
                can_undo=self._history.can_undo,
                can_redo=self._history.can_redo,
            )
        )
        self._start()

    def _measured_within(self, recipe: Recipe) -> Comparison | None:
        """What is known of a recipe; what was measured within another limit is dropped, since it
        says whether the recipe keeps that one.
        """
        if self.tried.has_other_limit(recipe):
            self._comparisons.drop(recipe)
        return self._comparisons.get(recipe)

    def _set(self, state: State) -> None:
        """Set a state with all that waits in it."""
        super()._set(replace(state, queued=tuple(self._queries)))

    def _kept_variant(self, recipe: Recipe) -> Variant | None:
        """The recipe's variant, if its model is still in the cache (the only place that keeps
        models), with the original workload.
        """
        variant = kept_variant(self._own, recipe)
        return None if variant is None else replace(variant, work=self.work)

    def _update(self, version: int, **changes: Any) -> bool:
        """Change the state; False if this version is no longer the current one."""
        with self._lock:
            if version != self._version:
                return False
            self._set(replace(self._state, **changes))
            return True

    def _clear(self) -> None:
        self._own.variants.clear()  # they refer to the workload that refers to them

    def _job(self) -> Callable[[], None]:
        """The next job: a choice first, then the queries."""
        recipe, version = self._history.current, self._version
        if self._has_choice:
            is_again, is_waiting = self._is_again, self._is_waiting
            self._has_choice = self._is_again = self._is_waiting = False
            self._measured_within(recipe)  # another limit's may have come since it was chosen
            if is_waiting:
                return lambda: self._wait_and_measure(recipe, version)
            return lambda: self._apply_and_measure(recipe, version, again=is_again)
        name = next(iter(self._queries))
        seconds, options = self._queries.pop(name)
        self._set(replace(self._state, status=QUERIES[name].status, done=0, total=round(seconds)))
        known = self._records | {
            "baseline": self._baseline,
            "recipe": recipe,
            "comparison": self._comparisons.get(recipe),
        }
        context = QueryContext(self._own, seconds, lambda: version != self._version, known, options)
        return lambda: self._run_query(name, context, version)

    def _wait_and_measure(self, recipe: Recipe, version: int) -> None:
        """Measure a recipe again as soon as the machine is quiet; the known figures stay until
        then. One without any is measured in any case.
        """
        self._update(version, status="waiting", done=0, total=QUIET_SAMPLES)
        share = wait_until_quiet(
            lambda: version != self._version, lambda done: self._update(version, done=done)
        )
        is_known = self._comparisons.get(recipe) is not None
        if version != self._version or (share is not None and is_known):
            error = None if share is None else NEVER_QUIET.format(share=share)
            self._finish(version, error=error)
            return
        with self._lock:
            profiled = self._profiles.get(recipe)
            if profiled is not None and profiled.quality and not profiled.quality.is_quiet:
                self._profiles.drop(recipe)
                self.tried.update()
        self._apply_and_measure(recipe, version, again=True)

    def _apply_and_measure(self, recipe: Recipe, version: int, *, again: bool = False) -> None:
        """Apply a recipe and measure it, until a newer choice is made; `again`: though it was
        measured before. One that exceeds its limit is withdrawn.
        """
        try:
            if not again and self._is_withdrawn(recipe, self._comparisons.get(recipe)):
                return
            if not len(recipe) and self._comparisons.get(recipe) is None:
                self._measure_quickly(version)
                self._profile(recipe, version, self._own)
            self._update(version, status="applying")
            with threads(faster_threads(self._own)):  # for an engine without a number of its own
                variant = apply(self._own, recipe, should_stop=lambda: version != self._version)
            shown = replace(variant, work=self.work)
            known = self._comparisons.get(recipe)
            is_current = self._update(version, status="measuring", variant=shown, total=self.rounds)
            if is_current and (known is None or again):
                measured = self._measure(variant, version)
                # a stopped measurement is kept, one superseded by a newer choice is not
                if not (measured.is_interrupted and self._has_choice):
                    self._keep(recipe, measured)
                    if self._is_withdrawn(recipe, measured):
                        return
            known = self._comparisons.get(recipe)
            self._update(version, comparison=known)
            self._profile(recipe, version, variant if len(recipe) else self._own)
            self._profile(self._history.first, version, self._own)
            self._finish(version, variant=shown, **({"comparison": known} if known else {}))
        except StoppedError:
            self._withdraw_stopped(recipe)
        except BaseException as error:  # an interrupt, too: the caller of `wait` sees it
            self._withdraw_failed(recipe, error)

    def _profile(self, recipe: Recipe, version: int, subject: Workload | Variant) -> None:
        """Profile the workload or variant, once for each recipe, unless a newer choice was made."""
        if version != self._version:
            return
        record = self._profiles.get(recipe)
        if record is None:
            self._update(version, status="profiling", done=0, total=0)
            record = profile(subject, seconds=PROFILE_S)
            if not len(recipe):
                keep_profile(self._own, record)
            with self._lock:
                self._profiles.put(recipe, self._in_proportion(recipe.digest, record))
                self.tried.update()
        shown = self._profiles.get(self._history.current)
        self._update(version, profile=shown, baseline=self._baseline)

    def _measure_quickly(self, version: int) -> None:
        """A first figure of the unchanged model from the first round; better ones follow."""
        self._update(version, status="measuring", total=QUICK_ROUNDS)
        quick = compare(
            self._own,
            rounds=min(QUICK_ROUNDS, self.rounds),
            seconds=min(QUICK_S, self.seconds),
            metric=False,
            threads=faster_threads(self._own),
            should_stop=lambda: version != self._version,
            on_round=partial(self._show_round, version),
        )
        with self._lock:
            self.baseline.add(quick, is_rough=True)
            self._restate()
        self._update(version, comparison=quick)

    def _show_round(self, version: int, done: int, so_far: Comparison) -> None:
        self._update(version, done=done, comparison=so_far)

    def _measure(self, variant: Variant, version: int) -> Comparison:
        """Time the variant against the baseline; a newer choice ends it and discards what was
        measured.
        """
        return compare(
            self._own,
            *([variant] if len(variant.recipe) else []),
            rounds=self.rounds,
            seconds=self.seconds,
            threads=faster_threads(self._own),
            should_stop=lambda: version != self._version,
            on_round=partial(self._show_round, version),
        )

    def _run_query(self, name: str, context: QueryContext, version: int) -> None:
        """Run a query; a stop or a newer choice ends it, and its results so far are kept."""
        error = None
        try:
            with each_second(lambda done: self._update(version, done=done)):
                for records in QUERIES[name].find(context):
                    for key, record in records.items():
                        self._show(key, record)
        except BaseException as raised:
            is_stopped = isinstance(raised, StoppedError)  # before it had a result
            error = None if is_stopped else error_message(raised)
        with self._lock:
            status = self._state.status if self._has_choice else "idle"
            shown = replace(self._state, status=status, done=0, total=0)
            self._set(replace(shown, error=error) if error else shown)

    def _finish(self, version: int, **changes: Any) -> None:
        if not self._update(version, status="idle", **changes):
            with self._lock:
                if not self._has_choice:  # stopped, not superseded
                    self._set(replace(self._state, status="idle", **changes))

    def _is_withdrawn(self, recipe: Recipe, known: Comparison | None) -> bool:
        """Withdraw a recipe that exceeds its limit or could not be measured, and show why; whether
        it was. What is refused is in the results, and is current only if it is allowed there.
        """
        row = measured_row(known) if known is not None and len(recipe) else None
        why = row and (row.refused or (row.failure and f"it could not be measured: {row.failure}"))
        with self._lock:
            if not row or not why or self._has_choice or self._is_closed:
                return False
            if not self._history.withdraw(recipe, can_redo=False):
                return False
            self._request_update()
            here = self._history.current
            shown = Refused(
                f"{recipe.label}: {why}. It is withdrawn, and "
                f"{here.label if len(here) else 'the model as it came'} is here again.",
                self.tried.number(recipe),
                can_allow=not row.failure,
            )
            self._set(replace(self._state, refused=shown))
            return True

    def _withdraw_stopped(self, recipe: Recipe) -> None:
        """Withdraw a stopped recipe, which can be redone, unless a newer choice stopped it."""
        with self._lock:
            is_stopped = not self._has_choice and not self._is_closed
            if is_stopped and self._history.withdraw(recipe, can_redo=True):
                self._request_update()

    def _withdraw_failed(self, recipe: Recipe, error: BaseException) -> None:
        """Withdraw a recipe that failed and show why; one that was interrupted can be redone."""
        is_interrupt = not isinstance(error, Exception)
        with self._lock:
            if not is_interrupt:
                self.tried.fail(recipe, error_message(error))
            if not self._is_closed and self._history.withdraw(recipe, can_redo=is_interrupt):
                self._request_update()
            status = self._state.status if self._has_choice else "idle"
            self._set(replace(self._state, error=error_message(error), status=status))
