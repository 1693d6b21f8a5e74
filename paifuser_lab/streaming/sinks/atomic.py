"""A file that appears once it is complete."""

from __future__ import annotations

from contextlib import ExitStack
from pathlib import Path

from ..._files import replacing


class _DiscardedError(Exception):
    """Leaves the block of `replacing`, which removes its file then."""


class AtomicFile:
    """A file beside the one that it replaces when it is committed, and that is gone when it is
    discarded.
    """

    def __init__(self, path: str | Path) -> None:
        self._stack = ExitStack()
        self.path = self._stack.enter_context(replacing(path))

    def commit(self) -> None:
        """Put it in its place."""
        self._stack.close()

    def discard(self) -> None:
        """Remove it."""
        error = _DiscardedError()
        try:
            self._stack.__exit__(_DiscardedError, error, None)
        except _DiscardedError:
            return
