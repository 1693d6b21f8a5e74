"""An interactive optimisation of a workload: its recipe with undo and redo, and a worker that
applies and measures what is chosen.

A caller (a widget, a script) never waits: a choice changes the recipe at once, and the worker
applies it to a copy, measures it against the baseline in turn, and calls the listeners. A newer
choice ends an older measurement; a step that cannot be applied leaves the recipe as it was, with
an error. Recent models and records are kept, so that undo and redo are instant.

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
        self._own = work.copied()  # what the worker runs: yours may be trained in a cell meanwhile
        self.rounds, self.seconds = rounds, seconds
        self._history = History(Recipe(workload=work.name))
        self._comparisons = RecordCache[Comparison](self._history)
        self._profiles = RecordCache[Profile](self._history)
        self._version = 0  # of what is asked for; whatever worked on an older one stops
        self._wanted = True  # the model as it is comes first
        # the queries to answer: for how many seconds, with what options
        self._queries: dict[str, tuple[float, dict[str, Any]]] = {}
        self._found: dict[str, Any] = dict.fromkeys(RECORDS)
        first = State(self._history.first, status="profiling")
        super().__init__(first, name=f"session of {work.name}")
        wake_profiler()
        with self._lock:
            self._start()

    @property
    def recipe(self) -> Recipe:
        """The recipe that is chosen."""
        with self._lock:
            return self._history.current

    def choose(self, step: Step | dict[str, Any] | str) -> None:
        """Add a step where it belongs: one that a kind has only one of takes the older one's
        place.
        """
        self.set_recipe(self.recipe.with_step(step))

    def set_recipe(self, recipe: Recipe) -> None:
        """Choose a whole recipe; the one before is one undo away."""
        recipe = checked_recipe(recipe)
        with self._open():
            if self._history.push(recipe):
                self._ask()

    def undo(self) -> bool:
        """Go back to the recipe before; whether there was one."""
        return self._moved(self._history.undo)

    def redo(self) -> bool:
        """Take an undo back; whether there was one."""
        return self._moved(self._history.redo)

    def measure_again(self) -> None:
        """Forget the measurement of this recipe and measure anew."""
        with self._open():
            self._comparisons.drop(self._history.current)
            self._ask()

    def query(self, name: str, seconds: float | None = None, **options: Any) -> None:
        """Have the worker compute something of the model as it is when no choice is left to
        measure: its sensitivity, importance, coupling, allocation and others.
        """
        if name not in QUERIES:
            raise PaifuserError(f"A session has no query '{name}'; it has {', '.join(QUERIES)}.")
        seconds = QUERIES[name].seconds if seconds is None else seconds
        if not seconds > 0:
            raise PaifuserError(f"It takes time to find the {name}; {seconds} seconds are none.")
        with self._open():
            self._queries[name] = seconds, options
            self._start()

    def show(self, name: str, found: Any) -> None:
        """Show a record that was computed elsewhere under its name; None hides it."""
        with self._open():
            self._show(name, found)

    def stop(self) -> None:
        """End the measurement or query that runs; its results so far are kept."""
        with self._lock:
            self._version += 1
            self._queries.clear()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """No other thread sets a state inside the block."""
        with self._lock:
            yield

    def set_error(self, error: str | None) -> None:
        """Show an error message in place of the one that is shown; None hides it."""
        with self._lock:
            self._set(replace(self._state, error=error))

    def close(self) -> None:
        """End the worker; the session can still be read, and a further choice is an error."""
        with self._lock:
            self._is_closed = True
            self._version += 1
            self._wanted = False
            self._queries.clear()
            if self._worker is None:
                self._forget()

    # What follows runs under the lock, or in the worker.

    @contextmanager
    def _open(self) -> Iterator[None]:
        """Under the lock, in a session that still does what it is asked for."""
        with self._lock:
            if self._is_closed:
                raise PaifuserError(
                    f"The session of {self.work.name} is closed; make a new one to go on: "
                    "lab.Workbench(work)."
                )
            yield

    @property
    def _is_wanted(self) -> bool:
        return self._wanted or bool(self._queries)

    def _moved(self, move: Callable[[], bool]) -> bool:
        with self._open():
            if is_moved := move():
                self._ask()
            return is_moved

    def _ask(self) -> None:
        """Show what is known of the recipe at once, and let the worker do the rest."""
        recipe = self._history.current
        self._version += 1
        self._wanted = True
        known = self._comparisons.get(recipe)
        self._set(
            State(
                recipe,
                self._kept_variant(recipe),
                known,
                self._profiles.get(self._history.first),
                self._profiles.get(recipe),
                **known_records(self._found),
                status="applying",  # as the worker will at once
                can_undo=self._history.can_undo,
                can_redo=self._history.can_redo,
            )
        )
        self._start()

    def _kept_variant(self, recipe: Recipe) -> Variant | None:
        """The variant as it is shown, where its model is still in the cache, which alone keeps
        models.
        """
        variant = kept_variant(self._own, recipe)
        return None if variant is None else replace(variant, work=self.work)

    def _show(self, name: str, found: Any) -> None:
        with self._lock:
            self._found[name] = found
            self._set(self._state.with_record(name, found))

    def _update(self, version: int, **changes: Any) -> bool:
        """Change the state if nothing newer was asked for; whether that is so."""
        with self._lock:
            if version != self._version:
                return False
            self._set(replace(self._state, **changes))
            return True

    def _forget(self) -> None:
        self._own.variants.clear()  # they refer to the workload that refers to them

    def _job(self) -> Callable[[], None]:
        """A choice first; then the queries."""
        recipe, version = self._history.current, self._version
        if self._wanted:
            self._wanted = False
            return lambda: self._serve(recipe, version)
        name = next(iter(self._queries))
        seconds, options = self._queries.pop(name)
        self._set(
            replace(
                self._state, status=QUERIES[name].status, done=0, total=round(seconds), error=None
            )
        )
        known = self._found | {"baseline": self._profiles.get(self._history.first)}
        context = QueryContext(self._own, seconds, lambda: version != self._version, known, options)
        return lambda: self._find(name, context, version)

    def _serve(self, recipe: Recipe, version: int) -> None:
        """Apply a recipe and measure it, unless something newer is asked for meanwhile."""
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
            if known is not None and not (
                known.is_interrupted and self._wanted
            ):  # stopped is kept, overtaken is not
                with self._lock:
                    self._comparisons.put(recipe, known)
                self._update(version, comparison=known)
            self._profile(recipe, version, variant)
            self._rest(version, variant=shown, comparison=known)
        except StoppedError:
            self._step_back(recipe)
        except BaseException as error:  # an interrupt, too: whoever waits sees it
            self._fall_back(recipe, error)

    def _profile(self, recipe: Recipe, version: int, subject: Workload | Variant) -> None:
        """Profile what runs now, once for each recipe, unless something newer is asked for."""
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
        """Time the variant against the baseline; a newer choice ends it, and what little was
        measured then is not kept.
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

    def _find(self, name: str, context: QueryContext, version: int) -> None:
        """Answer a query; a stop or a newer choice ends it, and its results so far are kept."""
        error = None
        try:
            with each_second(lambda done: self._update(version, done=done)):
                for records in QUERIES[name].find(context):
                    for key, record in records.items():
                        self._show(key, record)
        except BaseException as raised:
            is_stopped = isinstance(raised, StoppedError)  # before it had anything
            error = None if is_stopped else error_message(raised)
        with self._lock:
            status = self._state.status if self._wanted else "idle"
            shown = replace(self._state, status=status, done=0, total=0)
            self._set(replace(shown, error=error) if error else shown)

    def _rest(self, version: int, **changes: Any) -> None:
        if not self._update(version, status="idle", **changes):
            with self._lock:
                if not self._wanted:  # stopped, not overtaken
                    self._set(replace(self._state, status="idle", **changes))

    def _step_back(self, recipe: Recipe) -> None:
        """A stopped step can be redone; where a newer choice stopped it, that one is next."""
        with self._lock:
            is_stopped = not self._wanted and not self._is_closed
            if is_stopped and self._history.withdraw(recipe, can_redo=True):
                self._ask()

    def _fall_back(self, recipe: Recipe, error: BaseException) -> None:
        """Take out the recipe that failed and show why; one that was only interrupted can be
        redone.
        """
        is_interrupt = not isinstance(error, Exception)
        with self._lock:
            if not self._is_closed and self._history.withdraw(recipe, can_redo=is_interrupt):
                self._ask()
            status = self._state.status if self._wanted else "idle"
            self._set(replace(self._state, error=error_message(error), status=status))
