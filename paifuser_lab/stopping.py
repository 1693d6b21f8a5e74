"""Stop long work: it calls `should_stop` regularly and raises StoppedError when that is true.

Ctrl-C is handled the same way. `keep_when_stopped` catches both if there are results to keep;
otherwise it raises them again for the caller.
"""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import StoppedError

ShouldStop = Callable[[], bool]
NO_RESULT = "was stopped before there was a result; nothing was changed."


@dataclass
class Ending:
    """How a block of work ended."""

    is_stopped: bool = False


def stop_if_asked(should_stop: ShouldStop | None, message: str = NO_RESULT) -> None:
    """Raise StoppedError if `should_stop` returns true."""
    if should_stop is not None and should_stop():
        raise StoppedError(message)


@contextmanager
def keep_when_stopped(has_results: Callable[[], bool] = lambda: True) -> Iterator[Ending]:
    """End only the block on a stop or Ctrl-C inside it, if there are results to keep."""
    ending = Ending()
    try:
        yield ending
    except (StoppedError, KeyboardInterrupt):
        if not has_results():
            raise
        ending.is_stopped = True


@contextmanager
def terminated_like_ctrl_c() -> Iterator[None]:
    """SIGTERM, by which `kill`, `timeout` and batch schedulers end a process, keeps the results so
    far, as Ctrl-C does; a forked worker that receives it just ends.
    """
    if threading.current_thread() is not threading.main_thread():
        yield
        return
    command = os.getpid()

    def end(number: int, frame: object) -> None:
        if os.getpid() != command:
            os._exit(128 + number)
        raise KeyboardInterrupt

    before = signal.signal(signal.SIGTERM, end)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
