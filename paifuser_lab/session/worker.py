"""A state with listeners, and a thread that changes it while there are jobs."""

from __future__ import annotations

import logging
import threading
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from ..errors import PaifuserError, first_line
from ..machine.openmp import release_pool
from .quiet import LoadHistory
from .state import State

logger = logging.getLogger(__name__)

Listener = Callable[[State], None]


class StateWorker(ABC):
    """A state with listeners, and a thread that runs jobs one after another while there are any.

    A subclass decides what the next job is.
    """

    def __init__(self, state: State, *, name: str) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._listeners: list[Listener] = []
        self._worker: threading.Thread | None = None
        self._is_closed = False
        self._state, self._name = state, name
        self._load = LoadHistory()

    @property
    @abstractmethod
    def _has_jobs(self) -> bool: ...

    @abstractmethod
    def _job(self) -> Callable[[], None]:
        """The next job; called under the lock, only if `_has_jobs`."""

    @abstractmethod
    def _clear(self) -> None:
        """Drop cached models, when the session is closed and its worker has ended."""

    @property
    def state(self) -> State:
        """The current state."""
        with self._lock:
            return self._state

    def wait(self, timeout: float | None = None) -> State:
        """Wait until the worker has no jobs left, or has ended after the session was closed; what
        this thread ran before would slow it down.
        """
        release_pool()
        with self._changed:
            self._changed.wait_for(lambda: self._worker is None, timeout)
            return self._state

    def observe(self, listener: Listener) -> Callable[[], None]:
        """Call the listener with every new state, in the thread that made it; call the result to
        stop.
        """

        def end() -> None:
            with self._lock:
                self._listeners = [other for other in self._listeners if other is not listener]

        with self._lock:
            self._listeners.append(listener)
        return end

    def _set(self, state: State) -> None:
        self._state = state
        for listener in tuple(self._listeners):
            try:
                listener(state)
            except Exception:
                logger.exception("a listener of the session failed; the session goes on")

    def _start(self) -> None:
        """Start the worker unless it runs; this thread's OpenMP threads would slow it down."""
        release_pool()
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._worker.start()

    def _work(self) -> None:
        """Run jobs until there are none; an error ends the worker, and `wait` still returns."""
        try:
            with self._load.sampling(self._show_load):
                while job := self._next_job():
                    try:
                        job()
                    finally:
                        release_pool()
        except BaseException as error:
            logger.exception("the worker of the session failed; the next choice has a new one")
            self._finish_worker(error=error_message(error))

    def _show_load(self, others: tuple[float, ...]) -> None:
        with self._lock:
            if self._worker is not None:
                self._set(replace(self._state, others=others))

    def _next_job(self) -> Callable[[], None] | None:
        with self._lock:
            if self._has_jobs:
                return self._job()
            self._finish_worker()
            return None

    def _finish_worker(self, **changes: Any) -> None:
        """End the worker and set an idle state."""
        with self._changed:
            self._worker = None
            self._changed.notify_all()
            if self._is_closed:
                self._clear()
            if self._state.is_busy or changes:
                self._set(replace(self._state, status="idle", done=0, total=0, **changes))


def error_message(error: BaseException) -> str:
    """One sentence for an error or an interrupt."""
    if not isinstance(error, Exception):
        return (
            f"The model was interrupted while it ran ({type(error).__name__}); nothing was "
            "changed; try again."
        )
    return (
        str(error)
        if isinstance(error, PaifuserError)
        else f"{type(error).__name__}: {first_line(error)}"
    )


@contextmanager
def each_second(call: Callable[[int], object]) -> Iterator[None]:
    """Run `call(1)` after one second, `call(2)` after two, and so on, in a separate thread, until
    the block is left.
    """
    is_done = threading.Event()

    def count() -> None:
        seconds = 0
        while not is_done.wait(1.0):
            seconds += 1
            call(seconds)

    thread = threading.Thread(target=count, name="seconds", daemon=True)
    thread.start()
    try:
        yield
    finally:
        is_done.set()
        thread.join()
