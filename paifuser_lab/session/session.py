"""An interactive optimisation of a workload: a recipe with undo and redo, and a worker thread that
applies and measures it.

A caller (a widget, a script) never waits: a choice changes the recipe at once; the worker applies
it to a copy of the model, measures it in alternation with the baseline, and calls the listeners. A
newer choice ends an older measurement. A step that cannot be applied leaves the recipe unchanged
and sets an error. Recent models and records are cached, so that undo and redo are instant.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..errors import PaifuserError
from ..recipe import Recipe, checked_recipe
from ..steps import Step
from .jobs import SessionJobs
from .queries import query_named


class Session(SessionJobs):
    """`session.choose({"fold": {}})`, `session.undo()`, `session.state`; `session.wait()` until the
    worker is done.
    """

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
        """Measure the current recipe again, at once or as soon as the machine is quiet; its figures
        are shown until there are new ones.
        """
        with self._open():
            self._request_update(again=True, when_quiet=when_quiet)

    def query(self, name: str, seconds: float | None = None, **options: Any) -> None:
        """Have the worker run a query once no choice is left to measure: sensitivity, importance,
        allocation and others on the unchanged model, memory on the one with the recipe.
        """
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
            if self._worker is None:
                self._clear()

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
