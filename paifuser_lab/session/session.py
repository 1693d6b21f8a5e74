"""A workload being optimised by somebody: its recipe with undo and redo, and a worker that applies
and measures what was chosen.

Whoever asks (a widget, a script) never waits: a choice changes the recipe at once, and the worker
applies it to a copy, measures it against the baseline in turn, and tells whoever listens. A newer
choice ends an older measurement; a step that cannot be applied leaves the recipe as it was, with
one sentence why. What was applied or measured lately is kept, so that undo and redo are instant.

The worker is a thread that lives while there is something to do: a session at rest has none, and
goes when nobody refers to it.
"""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any, TypeVar

from ..comparison import compare
from ..errors import PaifuserError, StoppedError
from ..profiler import profile
from ..profiler.recording import wake_profiler
from ..recipe import Recipe, checked_recipe
from ..records import Comparison, Profile
from ..steps import Step
from ..variant import Variant, apply, kept_variant
from ..workload import Workload, workload_of
from .queries import QUERIES, QueryContext
from .state import RECORDS, State, known_records
from .ticker import ticking
from .worker import Working, told

ROUNDS = 30
SECONDS = 10.0
LOOK_S = 2.0  # for the timed runs of a profile
MOST_RECORDS = 32  # comparisons, and as many profiles

Found = TypeVar("Found")


class Session(Working):
    """`session.choose({"fold": {}})`, `session.undo()`, `session.state`; `session.wait()` until the
    worker is done.
    """

    def __init__(self, work: Workload, *, rounds: int = ROUNDS, seconds: float = SECONDS) -> None:
        self.work = work = workload_of(work)
        self._own = work.copied()  # what the worker runs: yours may be trained in a cell meanwhile
        self.rounds, self.seconds = rounds, seconds
        self._past: list[Recipe] = [Recipe(workload=work.name)]
        self._future: list[Recipe] = []
        self._measured: OrderedDict[str, Comparison] = OrderedDict()
        self._profiles: OrderedDict[str, Profile] = OrderedDict()
        self._version = 0  # of what is asked for; whatever worked on an older one stops
        self._wanted = True  # the model as it is comes first
        self._looks: dict[
            str, tuple[float, dict[str, Any]]
        ] = {}  # what is to be looked at, for how many seconds, with what options
        self._found: dict[str, Any] = dict.fromkeys(RECORDS)
        super().__init__(State(self._past[0], status="profiling"), name=f"session of {work.name}")
        wake_profiler()
        with self._lock:
            self._have_done()

    @property
    def recipe(self) -> Recipe:
        """What is chosen."""
        with self._lock:
            return self._past[-1]

    def choose(self, step: Step | dict[str, Any] | str) -> None:
        """Add a step where it belongs: one that a kind has only one of takes the older one's
        place.
        """
        self.set_recipe(self.recipe.with_step(step))

    def set_recipe(self, recipe: Recipe) -> None:
        """Choose a whole recipe; the one before is one undo away."""
        recipe = checked_recipe(recipe)
        with self._open():
            if recipe == self._past[-1]:
                return
            self._past.append(recipe)
            self._future.clear()
            self._ask()

    def undo(self) -> bool:
        """Go back to the recipe before; whether there was one."""
        return self._move(self._past, self._future, least=1)

    def redo(self) -> bool:
        """Take an undo back; whether there was one."""
        return self._move(self._future, self._past, least=0)

    def measure_again(self) -> None:
        """Forget the measurement of this recipe and measure anew."""
        with self._open():
            self._measured.pop(self._past[-1].digest, None)
            self._ask()

    def look_at(self, name: str, seconds: float | None = None, **options: Any) -> None:
        """Have the worker look at the model as it is, as soon as it is at rest: at its sensitivity,
        importance, coupling or allocation.
        """
        if name not in QUERIES:
            raise PaifuserError(f"A session has no query '{name}'; it has {', '.join(QUERIES)}.")
        seconds = QUERIES[name].seconds if seconds is None else seconds
        if not seconds > 0:
            raise PaifuserError(f"It takes time to find the {name}; {seconds} seconds are none.")
        with self._open():
            self._looks[name] = seconds, options
            self._have_done()

    def show(self, name: str, found: Any) -> None:
        """Put what was found elsewhere, such as a sensitivity, into the state under its name; None
        takes it away.
        """
        with self._open():
            self._show(name, found)

    def stop(self) -> None:
        """End what is being measured or looked at; what was found until then is kept."""
        with self._lock:
            self._version += 1
            self._looks.clear()

    @contextmanager
    def paused(self) -> Iterator[None]:
        """Meanwhile no other thread makes a new state."""
        with self._lock:
            yield

    def tell(self, error: str | None) -> None:
        """Put a sentence in place of the error there is; None takes it away."""
        with self._lock:
            self._set(replace(self._state, error=error))

    def close(self) -> None:
        """End what the worker does; the session can still be read, and whoever asks it for more is
        told that it is closed.
        """
        with self._lock:
            self._is_closed = True
            self._version += 1
            self._wanted = False
            self._looks.clear()
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
        return self._wanted or bool(self._looks)

    def _move(self, source: list[Recipe], target: list[Recipe], *, least: int) -> bool:
        with self._open():
            if len(source) <= least:
                return False
            target.append(source.pop())
            self._ask()
            return True

    def _ask(self) -> None:
        """Show what is known of the recipe at once, and let the worker do the rest."""
        recipe = self._past[-1]
        self._version += 1
        self._wanted = True
        known = self._measured.get(recipe.digest)
        self._set(
            State(
                recipe,
                self._kept_variant(recipe),
                known,
                self._profiles.get(self._past[0].digest),
                self._profiles.get(recipe.digest),
                **known_records(self._found),
                status="applying",  # as the worker will at once
                can_undo=len(self._past) > 1,
                can_redo=bool(self._future),
            )
        )
        self._have_done()

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

    def _keep(self, kept: OrderedDict[str, Found], recipe: Recipe, found: Found) -> None:
        """Keep what was found of a recipe in place of what was not used for longest; what the model
        is as it is stays.
        """
        with self._lock:
            kept[recipe.digest] = found
            kept.move_to_end(recipe.digest)
            while len(kept) > MOST_RECORDS:
                del kept[next(digest for digest in kept if digest != self._past[0].digest)]

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
        """A choice first; then what there is to look at."""
        recipe, version = self._past[-1], self._version
        if self._wanted:
            self._wanted = False
            return lambda: self._serve(recipe, version)
        name = next(iter(self._looks))
        seconds, options = self._looks.pop(name)
        self._set(
            replace(
                self._state, status=QUERIES[name].status, done=0, total=round(seconds), error=None
            )
        )
        known = self._found | {"baseline": self._profiles.get(self._past[0].digest)}
        look = QueryContext(self._own, seconds, lambda: version != self._version, known, options)
        return lambda: self._find(name, look, version)

    def _serve(self, recipe: Recipe, version: int) -> None:
        """Apply a recipe and measure it, unless something newer is asked for meanwhile."""
        try:
            if not len(recipe):
                self._look(recipe, version, self._own)
            self._update(version, status="applying")
            variant = apply(self._own, recipe, should_stop=lambda: version != self._version)
            shown = replace(variant, work=self.work)
            known = self._measured.get(recipe.digest)
            if (
                self._update(version, status="measuring", variant=shown, total=self.rounds)
                and known is None
            ):
                known = self._measure(variant, version)
            if known is not None and not (
                known.is_interrupted and self._wanted
            ):  # stopped is kept, overtaken is not
                self._keep(self._measured, recipe, known)
                self._update(version, comparison=known)
            self._look(recipe, version, variant)
            self._rest(version, variant=shown, comparison=known)
        except StoppedError:
            self._step_back(recipe)
        except BaseException as error:  # an interrupt, too: whoever waits is told
            self._fall_back(recipe, error)

    def _look(self, recipe: Recipe, version: int, subject: Workload | Variant) -> None:
        """Profile what runs now, once for each recipe, unless something newer is asked for."""
        if version != self._version:
            return
        if recipe.digest not in self._profiles:
            self._update(version, status="profiling", done=0, total=0)
            self._keep(self._profiles, recipe, profile(subject, seconds=LOOK_S))
        first = self._profiles.get(self._past[0].digest)
        self._update(version, profile=self._profiles[recipe.digest], baseline=first)

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

    def _find(self, name: str, look: QueryContext, version: int) -> None:
        """Look at something; a stop or a newer choice ends it, and what it found until then is
        kept.
        """
        error = None
        try:
            with ticking(lambda done: self._update(version, done=done)):
                for found in QUERIES[name].find(look):
                    for one, record in found.items():
                        self._show(one, record)
        except BaseException as raised:
            is_stopped = isinstance(raised, StoppedError)  # before it had anything
            error = None if is_stopped else told(raised)
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
        """Somebody stopped a step, and can redo it to go on from there; where a newer choice
        stopped it, that one is next.
        """
        with self._lock:
            if (
                not self._wanted
                and not self._is_closed
                and len(self._past) > 1
                and self._past[-1] == recipe
            ):
                self._future.append(self._past.pop())
                self._ask()

    def _fall_back(self, recipe: Recipe, error: BaseException) -> None:
        """Take out the recipe that failed and say why; one that was only interrupted can be
        redone.
        """
        sentence = told(error)
        with self._lock:
            if self._past[-1] == recipe and len(self._past) > 1 and not self._is_closed:
                failed = self._past.pop()
                self._future += [] if isinstance(error, Exception) else [failed]
                self._ask()
            self._set(
                replace(
                    self._state,
                    error=sentence,
                    status="idle" if not self._wanted else self._state.status,
                )
            )
