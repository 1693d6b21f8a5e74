"""An interactive optimisation of a workload: a recipe with undo and redo, and a worker thread that
applies and measures it.

A caller (a widget, a script) never waits: a choice changes the recipe at once; the worker applies
it to a copy of the model, measures it in alternation with the baseline, and calls the listeners. A
newer choice ends an older measurement. A step that cannot be applied leaves the recipe unchanged
and sets an error. Recent models and records are cached, so that undo and redo are instant.

The worker is a thread that lives while there are jobs: an idle session has none, and is collected
when nothing refers to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..comparison import compare
from ..errors import PaifuserError, StoppedError
from ..profiler import profile
from ..profiler.recording import wake_profiler
from ..recipe import Recipe, checked_recipe
from ..records import Comparison, Profile
from ..steps import Step
from ..variant import Variant, apply, kept_variant
from ..workload import Workload, workload_of
from .history import History, RecordCache
from .queries import QUERIES, QueryContext
from .state import RECORDS, State, known_records
from .worker import StateWorker, each_second, error_message

ROUNDS = 30
SECONDS = 10.0
PROFILE_S = 2.0  # for the timed runs of a profile


class Session(StateWorker):
    """`session.choose({"fold": {}})`, `session.undo()`, `session.state`; `session.wait()` until the
    worker is done.
    """

    def __init__(self, work: Workload, *, rounds: int = ROUNDS, seconds: float = SECONDS) -> None:
        self.work = work = workload_of(work)
        self._own = work.copied()  # what the worker runs: the original may be trained in a cell
        self.rounds, self.seconds = rounds, seconds
        self._history = History(Recipe(workload=work.name))
        self._comparisons = RecordCache[Comparison](self._history)
        self._profiles = RecordCache[Profile](self._history)
        self._version = 0  # of the last choice; work on an older version stops
        self._has_choice = True  # to apply and measure; the unchanged model comes first
        # the queries to run: seconds and options of each
        self._queries: dict[str, tuple[float, dict[str, Any]]] = {}
        self._records: dict[str, Any] = dict.fromkeys(RECORDS)
        first = State(self._history.first, status="profiling")
        super().__init__(first, name=f"session of {work.name}")
        wake_profiler()
        with self._lock:
            self._start()

    @property
    def recipe(self) -> Recipe:
        """The chosen recipe."""
        with self._lock:
            return self._history.current

    def choose(self, step: Step | dict[str, Any] | str) -> None:
        """Add a step in its position; it replaces one of the same kind if the kind allows only
        one.
        """
        self.set_recipe(self.recipe.with_step(step))

    def set_recipe(self, recipe: Recipe) -> None:
        """Choose a whole recipe; `undo` returns to the previous one."""
        recipe = checked_recipe(recipe)
        with self._open():
            if self._history.push(recipe):
                self._request_update()

    def undo(self) -> bool:
        """Return to the previous recipe; False if there is none."""
        return self._move(self._history.undo)

    def redo(self) -> bool:
        """Choose the last undone recipe again; False if there is none."""
        return self._move(self._history.redo)

    def measure_again(self) -> None:
        """Discard the measurement of the current recipe and measure again."""
        with self._open():
            self._comparisons.drop(self._history.current)
            self._request_update()

    def query(self, name: str, seconds: float | None = None, **options: Any) -> None:
        """Have the worker run a query on the unchanged model (sensitivity, importance, coupling,
        allocation and others) once no choice is left to measure.
        """
        if name not in QUERIES:
            raise PaifuserError(f"A session has no query '{name}'; it has {', '.join(QUERIES)}.")
        seconds = QUERIES[name].seconds if seconds is None else seconds
        if not seconds > 0:
            raise PaifuserError(
                f"The query '{name}' needs a positive number of seconds, not {seconds}."
            )
        with self._open():
            self._queries[name] = seconds, options
            self._start()

    def show(self, name: str, record: Any) -> None:
        """Show a record computed elsewhere under its name; None hides it."""
        with self._open():
            self._show(name, record)

    def stop(self) -> None:
        """Stop the running measurement or query; its results so far are kept."""
        with self._lock:
            self._version += 1
            self._queries.clear()

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
            if self._worker is None:
                self._clear()

    # The methods below run under the lock, or in the worker.

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

    @property
    def _has_jobs(self) -> bool:
        return self._has_choice or bool(self._queries)

    def _move(self, move: Callable[[], bool]) -> bool:
        with self._open():
            if is_moved := move():
                self._request_update()
            return is_moved

    def _request_update(self) -> None:
        """Show what is known of the current recipe at once, and start the worker for the rest."""
        recipe = self._history.current
        self._version += 1
        self._has_choice = True
        known = self._comparisons.get(recipe)
        self._set(
            State(
                recipe,
                self._kept_variant(recipe),
                known,
                self._profiles.get(self._history.first),
                self._profiles.get(recipe),
                **known_records(self._records),
                status="applying",  # as the worker will at once
                can_undo=self._history.can_undo,
                can_redo=self._history.can_redo,
            )
        )
        self._start()

    def _kept_variant(self, recipe: Recipe) -> Variant | None:
        """The recipe's variant, if its model is still in the cache (the only place that keeps
        models), with the original workload.
        """
        variant = kept_variant(self._own, recipe)
        return None if variant is None else replace(variant, work=self.work)

    def _show(self, name: str, record: Any) -> None:
        with self._lock:
            self._records[name] = record
            self._set(self._state.with_record(name, record))

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
            self._has_choice = False
            return lambda: self._apply_and_measure(recipe, version)
        name = next(iter(self._queries))
        seconds, options = self._queries.pop(name)
        self._set(
            replace(
                self._state, status=QUERIES[name].status, done=0, total=round(seconds), error=None
            )
        )
        known = self._records | {"baseline": self._profiles.get(self._history.first)}
        context = QueryContext(self._own, seconds, lambda: version != self._version, known, options)
        return lambda: self._run_query(name, context, version)

    def _apply_and_measure(self, recipe: Recipe, version: int) -> None:
        """Apply a recipe and measure it, until a newer choice is made."""
        try:
            if not len(recipe):
                self._profile(recipe, version, self._own)
            self._update(version, status="applying")
            variant = apply(self._own, recipe, should_stop=lambda: version != self._version)
            shown = replace(variant, work=self.work)
            known = self._comparisons.get(recipe)
            if (
                self._update(version, status="measuring", variant=shown, total=self.rounds)
                and known is None
            ):
                known = self._measure(variant, version)
            # a stopped measurement is kept, one superseded by a newer choice is not
            if known is not None and not (known.is_interrupted and self._has_choice):
                with self._lock:
                    self._comparisons.put(recipe, known)
                self._update(version, comparison=known)
            self._profile(recipe, version, variant)
            self._finish(version, variant=shown, comparison=known)
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
            with self._lock:
                self._profiles.put(recipe, record)
        baseline = self._profiles.get(self._history.first)
        self._update(version, profile=record, baseline=baseline)

    def _measure(self, variant: Variant, version: int) -> Comparison | None:
        """Time the variant against the baseline; a newer choice ends it and discards what was
        measured.
        """

        def on_round(done: int, partial: Comparison) -> None:
            self._update(version, done=done, comparison=partial)

        return compare(
            self._own,
            *([variant] if len(variant.recipe) else []),
            rounds=self.rounds,
            seconds=self.seconds,
            should_stop=lambda: version != self._version,
            on_round=on_round,
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
            if not self._is_closed and self._history.withdraw(recipe, can_redo=is_interrupt):
                self._request_update()
            status = self._state.status if self._has_choice else "idle"
            self._set(replace(self._state, error=error_message(error), status=status))
