"""Reads a stream's source on a thread of its own, as far ahead as it has permits."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from functools import partial

from ..errors import PaifuserError
from .pool import Asked, Ended, Inbox, Read, SourceFailed
from .source import Source

POLL_S = 0.1


class Reader:
    """Puts groups into the driver's inbox; each takes one permit.

    A source that can be opened again (`can_reopen`) and raises after it has made progress is opened
    behind the last group read.
    """

    def __init__(
        self,
        source: Source,
        inbox: Inbox,
        *,
        start: int,
        on_restart: Callable[[BaseException], None],
    ) -> None:
        self.granted = 0
        self._source, self._inbox, self._next = source, inbox, start
        self._on_restart = on_restart
        self._permits = threading.Semaphore(0)
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True, name="paifuser-reader")

    def start(self) -> None:
        """Begin to read."""
        self._thread.start()

    def grant(self, room: int) -> None:
        """Let it read as many groups as there is room for, those granted before included."""
        if room > self.granted:
            self._permits.release(room - self.granted)
            self.granted = room

    def close(self) -> None:
        """End; a source that blocks is left behind on its thread."""
        self._is_over.set()
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _run(self) -> None:
        while True:
            begun_at = self._next
            try:
                self._read()
            except BaseException as error:
                can_reopen = getattr(self._source, "can_reopen", False)
                is_ours = isinstance(error, PaifuserError)
                if is_ours or not can_reopen or self._next == begun_at:
                    self._inbox.put(SourceFailed(error))
                    return
                self._permits.release()  # the one of the group that did not come
                self._inbox.put(Asked(partial(self._on_restart, error)))
                continue
            self._inbox.put(Ended())
            return

    def _read(self) -> None:
        groups = self._source.groups(self._next)
        try:
            while self._may_read():
                group = next(groups, None)
                if group is None:
                    return
                self._inbox.put(Read(group, time.monotonic()))
                self._next += 1
        finally:
            close = getattr(groups, "close", None)
            if close is not None:
                close()

    def _may_read(self) -> bool:
        while not self._is_over.is_set():
            if self._permits.acquire(timeout=POLL_S):
                return True
        return False
