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

_silent: Counter[int] = Counter()  # the threads that are silenced, and how deep
_lock = RLock()


@contextmanager
def compilers_silenced() -> Iterator[None]:
    """Drop what torch's compilers and exporters print to stderr, log and warn in this thread.

    It is about their internals, hundreds of lines for one operator that they cannot trace, and what
    matters of it comes as an error or in the output check that follows. Other threads still print.
    """
    here, handlers = get_ident(), _handlers()
    with _lock:
        if not isinstance(sys.stderr, _OtherThreads):
            sys.stderr = _OtherThreads(sys.stderr)
        _silent[here] += 1
    for handler in handlers:
        handler.addFilter(_is_heard)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        with _lock:
            _silent[here] -= 1
            if not _silent[here]:
                del _silent[here]
            if not _silent:
                for handler in handlers:
                    handler.removeFilter(_is_heard)
                if isinstance(sys.stderr, _OtherThreads):
                    sys.stderr = sys.stderr.stream


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
