"""An interactive optimisation of a workload: a recipe with undo and redo, and a worker thread that
applies and measures it.

A caller (a widget, a script) never waits: a choice changes the recipe at once; the worker applies
it to a copy of the model, measures it in alternation with the baseline, and calls the listeners. A
newer choice ends an older measurement. A step that cannot be applied leaves the recipe unchanged
and sets an error. Recent models and records are cached, so that undo and redo are instant.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from functools import partial
from typing import Any

from ..errors import PaifuserError, StoppedError
from ..jobs import QUERIES, QueryContext, query_named
from ..jobs.measuring import QUICK_ROUNDS, Measuring, earlier_profile, profiled
from ..jobs.worker import (
    QUIET_SAMPLES,
    Shares,
    Worker,
    each_second,
    error_message,
    wait_until_quiet,
)
from ..records import Comparison
from ..variant import Variant, kept_variant
from ..variant.recipe import Recipe, checked_recipe
from ..workload import Workload, workload_of
from .baseline import Baseline
from .history import History, Tried, measured_row
from .state import RECORDS, Refused, State, known_records

ROUNDS = 30
SECONDS = 10.0
NEVER_QUIET = (
    "The machine did not become quiet within two minutes: others took up to {share:.0%} of the "
    "cores in the last seconds; close some and wait again, or measure as it is."
)

logger = logging.getLogger(__name__)

Listener = Callable[[State], None]


class Session:
    """`session.choose({"fold": {}})`, `session.undo()`, `session.state`; `session.wait()` until the
    worker is done.

    Methods from `_next_job` on run in the worker, the others in the caller's thread; what both use
    is read and set under the lock.
    """

    def __init__(self, work: Workload, *, rounds: int = ROUNDS, seconds: float = SECONDS) -> None:
        self.work = work = workload_of(work)
        self._own = work.copied()  # what the worker runs: the original may be trained in a cell
        self.rounds, self.seconds = rounds, seconds
        self._lock = threading.RLock()
        self._listeners: list[Listener] = []
        self._is_closed = False
        self._version = 0  # of the last choice; work on an older version stops
        self._is_again = False  # to be measured though it was; the known figures stay until then
        self._is_waiting = False  # for a quiet machine, to measure again
        self._has_choice = True  # to apply and measure; the unchanged model comes first
        # the queries to run: seconds and options of each
        self._queries: dict[str, tuple[float, dict[str, Any]]] = {}
        self._records: dict[str, Any] = dict.fromkeys(RECORDS)
        self._history = History(Recipe(workload=work.loaded_as))
        self.baseline = Baseline()
        self.tried = Tried(self._history.first, self.baseline, earlier_profile(work))
        known = self.tried.first_profile
        self._state = State(self._history.first, baseline=known, profile=known, status="applying")
        self._worker = Worker(f"session of {work.name}", self._lock)
        with self._lock:
            self._start()

    @property
    def state(self) -> State:
        """The current state."""
        with self._lock:
            return self._state

    @property
    def recipe(self) -> Recipe:
        """The chosen recipe."""
        with self._lock:
            return self._history.current

    def wait(self, timeout: float | None = None) -> State:
        """Wait until no jobs are left, or the worker has ended after the session was closed."""
        with self._lock:
            self._worker.wait(timeout)
            return self._state

    def observe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every new state, in its thread; call the result to stop."""

        def end() -> None:
            with self._lock:
                self._listeners = [other for other in self._listeners if other is not listener]

        with self._lock:
            self._listeners.append(listener)
        return end

    def choose(self, step: Any) -> None:
        """Add a step, as in a recipe, in its position; it may replace one of the same kind."""
        self.set_recipe(self.recipe.with_step(step))

    def set_recipe(self, recipe: Recipe) -> None:
        """Choose a whole recipe; `undo` returns to the previous one."""
        recipe = checked_recipe(recipe)
        with self._open():
            if self._history.push(recipe):
                self._request_update()

    def allow(self, number: int) -> None:
        """Choose the recipe of a refused result all the same: its limit becomes what it loses."""
        self.set_recipe(self.tried.allowed(number))

    def undo(self) -> bool:
        """Return to the previous recipe; False if there is none."""
        return self._move(self._history.undo)

    def redo(self) -> bool:
        """Choose the last undone recipe again; False if there is none."""
        return self._move(self._history.redo)

    def measure_again(self, *, when_quiet: bool = False) -> None:
        """Measure the current recipe again; its figures are shown until there are new ones."""
        with self._open():
            self._request_update(again=True, when_quiet=when_quiet)

    def query(self, name: str, seconds: float | None = None, **options: Any) -> None:
        """Have the worker run a query once no choice is left to measure."""
        seconds = query_named(name).seconds if seconds is None else seconds
        if not seconds > 0:
            raise PaifuserError(
                f"The query '{name}' needs a positive number of seconds, not {seconds}."
            )
        with self._open():
            self._queries[name] = seconds, options
            self._set(replace(self._state, error=None))
            self._start()

    def show(self, name: str, record: Any) -> None:
        """Show a record computed elsewhere under its name; None hides it."""
        with self._open():
            self._show(name, record)

    def stop(self, query: str | None = None) -> None:
        """Stop the running job and all that waits; its results so far are kept.

        With the name of a query only that one: it no longer waits, or it ends if it is running.
        """
        with self._lock:
            if query is None:
                self._is_waiting = self._is_again = False
                self._queries.clear()
            else:
                self._queries.pop(query, None)
            if query is None or self._state.status == query_named(query).status:
                self._version += 1
            self._set(self._state)

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Hold the lock: no other thread sets a state inside the block."""
        with self._lock:
            yield

    def set_error(self, error: str | None) -> None:
        """Replace the error message that is shown; None hides it."""
        with self._lock:
            self._set(replace(self._state, error=error))

    def close(self) -> None:
        """End the worker. The state can still be read; any further choice raises an error."""
        with self._lock:
            self._is_closed = True
            self._version += 1
            self._has_choice = False
            self._queries.clear()
            if self._worker.thread is None:
                self._clear()

    def _clear(self) -> None:
        self._own.variants.clear()  # they refer to the workload that refers to them

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Hold the lock of a session that is not closed."""
        with self._lock:
            if self._is_closed:
                raise PaifuserError(
                    f"The session of {self.work.name} is closed; make a new one to go on: "
                    "lab.Workbench(work)."
                )
            yield

    def _move(self, move: Callable[[], bool]) -> bool:
        with self._open():
            if is_moved := move():
                self._request_update()
            return is_moved

    def _start(self) -> None:
        self._worker.start(self._next_job, self._show_load, self._fail)

    def _request_update(self, *, again: bool = False, when_quiet: bool = False) -> None:
        """Show what is known of the current recipe at once, and start the worker for the rest."""
        recipe = self._history.current
        # first of all: the job that runs must see that it is superseded
        self._version += 1
        self._has_choice, self._is_again, self._is_waiting = True, again, when_quiet
        self._set(
            State(
                recipe,
                self._kept_variant(recipe),
                self.tried.comparison(recipe),
                self.tried.first_profile,
                self.tried.profile_of(recipe),
                **known_records(self._records),
                status="waiting" if when_quiet else "applying",  # as the worker will
                others=self._worker.load.shares,
                can_undo=self._history.can_undo,
                can_redo=self._history.can_redo,
            )
        )
        self._start()

    def _kept_variant(self, recipe: Recipe) -> Variant | None:
        """The recipe's variant, if the cache of models still has it, with the original workload."""
        variant = kept_variant(self._own, recipe)
        return None if variant is None else replace(variant, work=self.work)

    def _set(self, state: State) -> None:
        """Set a state, with everything tried so far and all that waits in it."""
        self._state = state = replace(
            state,
            comparison=self.baseline.stated(state.comparison),
            results=self.tried.results(self.work.name, state.recipe),
            queued=tuple(self._queries),
        )
        for listener in tuple(self._listeners):
            try:
                listener(state)
            except Exception:
                logger.exception("a listener of the session failed; the session goes on")

    def _update(self, version: int, **changes: Any) -> bool:
        """Change the state; False if this version is no longer the current one."""
        with self._lock:
            if version != self._version:
                return False
            self._set(replace(self._state, **changes))
            return True

    def _show(self, name: str, record: Any) -> None:
        with self._lock:
            self._records[name] = record = self.baseline.stated(record)
            self._set(self._state.with_record(name, record))

    def _next_job(self) -> Callable[[], None] | None:
        """The next job: a choice before the queries, which need its figures; None ends the worker,
        in the same hold of the lock, so that a choice made after it starts a new one.
        """
        with self._lock:
            version = self._version
            if self._has_choice:
                is_again, is_waiting = self._is_again, self._is_waiting
                self._has_choice = self._is_again = self._is_waiting = False
                job = self._wait_and_measure if is_waiting else self._apply_and_measure
                return partial(job, self._history.current, version, again=is_again)
            if self._queries:
                return self._query_job(version)
            self._end_worker()
            return None

    def _end_worker(self, **changes: Any) -> None:
        """Let the worker end, called under the lock, and set an idle state."""
        self._worker.end()
        if self._is_closed:
            self._clear()
        if self._state.is_busy or changes:
            self._set(replace(self._state, status="idle", done=0, total=0, **changes))

    def _fail(self, error: BaseException) -> None:
        """An error of the worker itself; `wait` still returns."""
        logger.error(
            "the worker of the session failed; the next choice has a new one", exc_info=error
        )
        with self._lock:
            self._end_worker(error=error_message(error))

    def _show_load(self, others: Shares) -> None:
        with self._lock:
            if self._worker.thread is not None:
                self._set(replace(self._state, others=others))

    def _wait_and_measure(self, recipe: Recipe, version: int, *, again: bool) -> None:
        """Measure a recipe again as soon as the machine is quiet; the known figures stay until
        then. One without any is measured in any case.
        """
        self._update(version, status="waiting", done=0, total=QUIET_SAMPLES)
        share = wait_until_quiet(
            lambda: version != self._version, lambda done: self._update(version, done=done)
        )
        is_known = self.tried.comparison(recipe) is not None
        if version != self._version or (share is not None and is_known):
            error = None if share is None else NEVER_QUIET.format(share=share)
            self._finish(version, error=error)
            return
        with self._lock:
            for one in (recipe, self._history.first):
                self.tried.drop_noisy_profile(one)
        self._apply_and_measure(recipe, version, again=again)

    def _apply_and_measure(self, recipe: Recipe, version: int, *, again: bool) -> None:
        """Apply a recipe and measure it, until a newer choice is made; `again`: though it was
        measured before. One that exceeds its limit is withdrawn.
        """
        bench = Measuring(self._own, self.rounds, self.seconds, lambda: version != self._version)
        on_round = partial(self._show_round, version)
        try:
            known = self.tried.comparison(recipe)
            if not again and self._is_withdrawn(recipe, known):
                return
            # the first figure and the layers of the unchanged model come before all that is slow
            is_first = not len(recipe) and known is None
            if is_first:
                self._update(version, status="measuring", total=QUICK_ROUNDS)
                quick = bench.timed_quickly(on_round)
                with self._lock:
                    self.baseline.add(quick, is_rough=True)
                    self._restate()
                self._update(version, comparison=quick)
                self._profile(recipe, version, self._own)
            self._update(version, status="applying")
            variant = bench.applied(recipe)
            shown = replace(variant, work=self.work)
            is_current = self._update(version, status="measuring", variant=shown, total=self.rounds)
            if is_current and (known is None or again):
                measured = bench.timed(variant, on_round)
                # a stopped measurement is kept unless a whole one is known; one superseded by a
                # newer choice is not
                is_whole = known is not None and not known.is_interrupted
                if not (measured.is_interrupted and (self._has_choice or is_whole)):
                    self._keep(recipe, measured)
                    if self._is_withdrawn(recipe, measured):
                        return
            known = self.tried.comparison(recipe)
            self._update(version, comparison=known)
            if is_first:  # the page was being painted when its layers were timed
                with self._lock:
                    self.tried.drop_noisy_profile(recipe)
            self._profile(recipe, version, variant if len(recipe) else self._own)
            self._profile(self._history.first, version, self._own)
            self._finish(version, variant=shown, **({"comparison": known} if known else {}))
        except StoppedError:
            self._withdraw_stopped(recipe)
        except BaseException as error:  # an interrupt, too: the caller of `wait` sees it
            self._withdraw_failed(recipe, error)

    def _show_round(self, version: int, done: int, so_far: Comparison) -> None:
        self._update(version, done=done, comparison=so_far)

    def _keep(self, recipe: Recipe, measured: Comparison) -> None:
        """Keep a comparison, as a row of the results too; it timed the unchanged model anew."""
        with self._lock:
            self.tried.put(recipe, measured)
            self.baseline.add(measured, is_rough=measured.is_interrupted)
            self._restate()

    def _restate(self) -> None:
        """Give every record that is kept the one latency of the unchanged model, which was measured
        anew; called under the lock.
        """
        self.tried.restate()
        self._records = {name: self.baseline.stated(one) for name, one in self._records.items()}
        self._set(
            replace(
                self._state,
                baseline=self.tried.first_profile,
                profile=self.tried.profile_of(self._history.current),
                **known_records(self._records),
            )
        )

    def _profile(self, recipe: Recipe, version: int, subject: Workload | Variant) -> None:
        """Profile the workload or variant, once for each recipe, unless a newer choice was made."""
        if version != self._version:
            return
        if not self.tried.has_own_profile(recipe):
            self._update(version, status="profiling", done=0, total=0)
            record = profiled(subject)
            with self._lock:
                self.tried.put_profile(recipe, record)
        shown = self.tried.profile_of(self._history.current)
        self._update(version, profile=shown, baseline=self.tried.first_profile)

    def _query_job(self, version: int) -> Callable[[], None]:
        """The first query that waits; its status is set at once, by which it can be stopped."""
        name = next(iter(self._queries))
        seconds, options = self._queries.pop(name)
        self._set(replace(self._state, status=QUERIES[name].status, done=0, total=round(seconds)))
        recipe = self._history.current
        known = self._records | {
            "baseline": self.tried.first_profile,
            "recipe": recipe,
            "comparison": self.tried.comparison(recipe),
        }
        context = QueryContext(self._own, seconds, lambda: version != self._version, known, options)
        return partial(self._run_query, name, context, version)

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
            # the update clears what was refused before; this one is set after it
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
