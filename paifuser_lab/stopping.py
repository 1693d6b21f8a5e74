"""One way to stop long work: whoever waits answers `should_stop`, and a StoppedError ends it.

Ctrl-C is the same wish from the keyboard. `keep_when_stopped` is where both become one: what was
computed until then is kept, and where there is nothing to keep the stop goes on to the caller.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from .errors import StoppedError

ShouldStop = Callable[[], bool]
NOTHING = "was stopped before there was a result; nothing was changed."


@dataclass
class Ending:
    """How a block of work ended."""

    is_stopped: bool = False


def stop_if_asked(should_stop: ShouldStop | None, message: str = NOTHING) -> None:
    """End the work where it is to stop."""
    if should_stop is not None and should_stop():
        raise StoppedError(message)


@contextmanager
def keep_when_stopped(has_results: Callable[[], bool] = lambda: True) -> Iterator[Ending]:
    """A stop or Ctrl-C inside ends the block and no more, where there are results to keep."""
    ending = Ending()
    try:
        yield ending
    except (StoppedError, KeyboardInterrupt):
        if not has_results():
            raise
        ending.is_stopped = True
