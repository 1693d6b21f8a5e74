"""Keep a compiler's or exporter's graphs, logs and warnings out of the output of this thread."""

from __future__ import annotations

import logging
import sys
import warnings
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from threading import RLock, get_ident
from typing import Any

NOISY = ("torch", "onnxscript", "onnx_ir")  # the packages whose log records are dropped

ANY_MESSAGE = "(?s).*(?#of a compiler)"  # a pattern that nobody else's filter has

_filtered: list[Any] = []  # the lists of filters that ours was added to
_silent: Counter[int] = Counter()  # the threads that are silenced, and how deep
_lock = RLock()


@contextmanager
def compilers_silenced() -> Iterator[None]:
    """Drop what torch's compilers and exporters print to stderr, log and warn in this thread.

    It is about their internals, hundreds of lines for one operator that they cannot trace, and what
    matters of it comes as an error or in the output check that follows. Other threads still print;
    warnings, which Python filters for all threads alike, are ignored in all of them meanwhile.
    """
    here, handlers = get_ident(), _handlers()
    with _lock:
        if not isinstance(sys.stderr, _OtherThreads):
            sys.stderr = _OtherThreads(sys.stderr)
        if not _silent:
            _ignore_warnings()
        _silent[here] += 1
    for handler in handlers:
        handler.addFilter(_is_heard)
    try:
        yield
    finally:
        with _lock:
            _silent[here] -= 1
            if not _silent[here]:
                del _silent[here]
            if not _silent:
                _hear_warnings()
                for handler in handlers:
                    handler.removeFilter(_is_heard)
                if isinstance(sys.stderr, _OtherThreads):
                    sys.stderr = sys.stderr.stream


def _ignore_warnings() -> None:
    """Add a filter of our own. `warnings.catch_warnings` is not for threads: entered and left in
    turn with a block of another thread, it would leave its filters or ours for ever.
    """
    warnings.filterwarnings("ignore", message=ANY_MESSAGE)
    _filtered.append(warnings.filters)


def _hear_warnings() -> None:
    """Remove the filter from the list that it was added to, and from one that a block of another
    thread has copied meanwhile.
    """
    for filters in (*_filtered, warnings.filters):
        ours = [entry for entry in filters if getattr(entry[1], "pattern", None) == ANY_MESSAGE]
        for entry in ours:
            filters.remove(entry)
    _filtered.clear()


class _OtherThreads:
    """A stream that drops what silenced threads write."""

    def __init__(self, stream: Any) -> None:
        self.stream = stream

    def write(self, text: str) -> int:
        return len(text) if get_ident() in _silent else self.stream.write(text)

    def __getattr__(self, name: str) -> Any:
        return getattr(self.stream, name)


def _handlers() -> list[logging.Handler]:
    """Every handler that a record of the noisy packages can reach."""
    known = list(logging.Logger.manager.loggerDict)
    names = [name for name in known if name.partition(".")[0] in NOISY]
    loggers = [logging.getLogger(), *(logging.getLogger(name) for name in names)]
    handlers = [handler for logger in loggers for handler in logger.handlers]
    return [*handlers, *([logging.lastResort] if logging.lastResort else [])]


def _is_heard(record: logging.LogRecord) -> bool:
    return record.thread not in _silent or record.name.partition(".")[0] not in NOISY
