"""Whose turn it is to run models: one thread at a time, those that wait in the order they came."""

from __future__ import annotations

from threading import Lock, RLock, get_ident

from .openmp import release_pool


class TurnLock:
    """A re-entrant lock for which a thread that has just given it up comes after the one that
    waits; of a plain lock it would get turn after turn, since it is awake already.

    Who waits, and who hands over, has no pool of OpenMP threads meanwhile: two pools slow both.
    """

    def __init__(self) -> None:
        self._turn = RLock()
        self._next = Lock()  # held by the thread that waits for the turn, or is about to have it
        self._owner = 0
        self._depth = 0

    @property
    def is_awaited(self) -> bool:
        """Whether a thread waits for its turn."""
        return self._next.locked()

    def acquire(self, *, blocking: bool = True) -> bool:
        """Wait for the turn; without `blocking` return False unless it is free at once."""
        if self._owner == get_ident():
            self._turn.acquire()
        elif not self._take_at_once():
            if not blocking:
                return False
            release_pool()
            with self._next:
                self._turn.acquire()
        self._owner = get_ident()
        self._depth += 1
        return True

    def release(self) -> None:
        """Give the turn up."""
        if self._owner != get_ident():
            raise RuntimeError("a turn can only be given up by the thread that has it")
        self._depth -= 1
        try:
            if not self._depth:
                self._owner = 0
                if self.is_awaited:
                    release_pool()
        finally:  # also after an interrupt: who waits would do so for ever
            self._turn.release()

    def __enter__(self) -> None:
        self.acquire()

    def __exit__(self, *error: object) -> None:
        self.release()

    def _take_at_once(self) -> bool:
        if not self._next.acquire(blocking=False):
            return False
        try:
            return self._turn.acquire(blocking=False)
        finally:
            self._next.release()


# One thread runs models at a time: a workbench runs them in the background while a cell may do the
# same, perhaps with the same model. Its flags and buffers, torch's profiler and modes, export and
# compilation are global to the process, and concurrent timings would disturb each other. Whoever
# measures in rounds gives the turn up after each, so that another measurement goes on between them.
QUIET = TurnLock()
