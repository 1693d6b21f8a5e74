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
from .state import State

logger = logging.getLogger(__name__)

Listener = Callable[[State], None]


class StateWorker(ABC):
    """A state with listeners, and a thread that runs one job after another while there are any.

    A subclass decides what the next job is.
    """

    def __init__(self, state: State, *, name: str) -> None:
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._listeners: list[Listener] = []
        self._worker: threading.Thread | None = None
        self._is_closed = False
        self._state, self._name = state, name

    @property
    @abstractmethod
    def _is_wanted(self) -> bool: ...

    @abstractmethod
    def _job(self) -> Callable[[], None]:
        """The next job, called under the lock where there is one."""

    @abstractmethod
    def _forget(self) -> None:
        """Drop what was kept, when the session is closed and its worker has ended."""

    @property
    def state(self) -> State:
        """The current state."""
        with self._lock:
            return self._state

    def wait(self, timeout: float | None = None) -> State:
        """Wait until the worker has nothing left to do, or the session was closed and the worker
        has ended.
        """
        with self._changed:
            self._changed.wait_for(lambda: self._worker is None, timeout)
            return self._state

    def observe(self, listener: Listener) -> Callable[[], None]:
        """Have the listener called with every new state, in the thread that made it; calling the
        result ends that.
        """

        def end() -> None:
            with self._lock:
                self._listeners = [one for one in self._listeners if one is not listener]

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
        """Start the worker unless it runs."""
        if self._worker is None:
            self._worker = threading.Thread(target=self._work, name=self._name, daemon=True)
            self._worker.start()

    def _work(self) -> None:
        """Run jobs until there are none; an error ends the worker, not whoever waits for it."""
        try:
            while job := self._next_job():
                job()
        except BaseException as error:
            logger.exception("the worker of the session failed; the next choice has a new one")
            self._rest_now(error=error_message(error))

    def _next_job(self) -> Callable[[], None] | None:
        with self._lock:
            if self._is_wanted:
                return self._job()
            self._rest_now()
            return None

    def _rest_now(self, **changes: Any) -> None:
        """The worker ends."""
        with self._changed:
            self._worker = None
            self._changed.notify_all()
            if self._is_closed:
                self._forget()
            if self._state.is_busy or changes:
                self._set(replace(self._state, status="idle", done=0, total=0, **changes))


def error_message(error: BaseException) -> str:
    """An error or an interrupt in one sentence."""
    if not isinstance(error, Exception):
        return (
            f"The model was interrupted while it ran ({type(error).__name__}); nothing was "
            "changed; ask for it again."
        )
    return (
        str(error)
        if isinstance(error, PaifuserError)
        else f"{type(error).__name__}: {first_line(error)}"
    )


@contextmanager
def each_second(call: Callable[[int], object]) -> Iterator[None]:
    """`call(1)` after one second, `call(2)` after two, from a thread of its own, until the block is
    left.
    """
    is_over = threading.Event()

    def count() -> None:
        seconds = 0
        while not is_over.wait(1.0):
            seconds += 1
            call(seconds)

    counting = threading.Thread(target=count, name="seconds", daemon=True)
    counting.start()
    try:
        yield
    finally:
        is_over.set()
        counting.join()
