"""Where a stream's results go: a sink, written group by group, in order, by the driver."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any, Protocol, runtime_checkable

from .stage import Result


@runtime_checkable
class Sink(Protocol):
    """Receives the results of each group once, in order.

    With a journal, what `write` returns is kept in the same transaction as the group's number (text
    such as an offset in a file); after a restart `open` receives the last one, and removes what was
    written after it. A sink that cannot do so has `is_resumable = False`.
    """

    @property
    def name(self) -> str:
        """What reports and errors call it."""

    @property
    def is_resumable(self) -> bool:
        """Whether it can go on behind the last committed group."""

    def open(self, token: str | None) -> None:
        """Begin; with a token, behind the group whose `write` returned it."""

    def write(self, results: Sequence[Result]) -> str | None:
        """Take the results of one group; those of frames set aside have an `error`."""

    def close(self) -> None:
        """Finish, after the last group."""

    def abort(self) -> None:
        """Leave nothing half-written after a failure or stop, but what a journal has committed."""


class Callback:
    """A sink that calls a function with each result."""

    is_resumable = True

    def __init__(self, function: Callable[[Result], Any], *, name: str = "callback") -> None:
        self.function = function
        self.name = name

    def open(self, token: str | None) -> None:
        return

    def write(self, results: Sequence[Result]) -> str | None:
        for result in results:
            self.function(result)
        return None

    def close(self) -> None:
        return

    def abort(self) -> None:
        return


class Watched:
    """A sink, or none, and a function that sees what it has taken."""

    def __init__(self, sink: Sink | None, see: Callable[[Sequence[Result]], Any]) -> None:
        self.sink, self.see = sink or Callback(lambda _: None, name=""), see
        self.name, self.is_resumable = self.sink.name, self.sink.is_resumable
        self.open, self.close, self.abort = self.sink.open, self.sink.close, self.sink.abort

    def write(self, results: Sequence[Result]) -> str | None:
        token = self.sink.write(results)
        self.see(results)
        return token
