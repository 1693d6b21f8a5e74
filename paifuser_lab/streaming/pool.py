"""The workers of a stream as its driver sees them: messages to them, events from them."""

from __future__ import annotations

import os
import queue
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Protocol

from .source import Group
from .worker import Answer

JOIN_S = 1.0  # workers that do not end in this time are left behind: they hang in a stage


def default_workers() -> int:
    """How many workers one machine has where their number is not given."""
    return min(4, os.cpu_count() or 1)


@dataclass(frozen=True)
class Joined:
    """A worker has opened its stages."""

    node: str
    host: str = ""


@dataclass(frozen=True)
class Lost:
    """A worker is gone, or could not open; `is_replaced` if another starts in its place."""

    node: str
    reason: str
    is_replaced: bool = False


@dataclass(frozen=True)
class Answered:
    """A worker has answered a group."""

    node: str
    group: int
    offsets: tuple[int, ...] | None
    answer: Answer


@dataclass(frozen=True)
class Returned:
    """A group did not reach a worker that is still alive."""

    node: str
    group: int
    reason: str


@dataclass(frozen=True)
class Read:
    """The source has yielded a group; `at` is when."""

    group: Group
    at: float


@dataclass(frozen=True)
class Ended:
    """The source has no more groups."""


@dataclass(frozen=True)
class SourceFailed:
    """The source raised."""

    error: BaseException


@dataclass(frozen=True)
class Asked:
    """Something that the driver is asked to do, by another thread."""

    action: Callable[[], Any]


Event = Joined | Lost | Answered | Returned | Read | Ended | SourceFailed | Asked
Inbox = queue.SimpleQueue[Event]


class Pool(Protocol):
    """Starts workers, sends them groups, and puts what happens to them into the driver's inbox.

    Every worker that starts is announced by Joined or Lost, and a Joined one may be Lost later.
    """

    @property
    def starting(self) -> int:
        """How many workers have started and are neither joined nor lost."""
        ...

    def start(self) -> None:
        """Start the first workers."""
        ...

    def send(self, node: str, group: Group, offsets: tuple[int, ...] | None) -> None:
        """Send a group to a worker."""
        ...

    def kill(self, node: str) -> None:
        """End a worker that hangs, and start another; the driver has forgotten it."""
        ...

    def add(self) -> None:
        """Start one more worker."""
        ...

    def remove(self, node: str) -> None:
        """End a worker that holds nothing."""
        ...

    def look(self, now: float) -> None:
        """Notice machines that have come; called a few times a second."""
        ...

    def missing(self) -> str:
        """What the workers that have not started wait for."""
        ...

    def close(self) -> None:
        """End every worker."""
        ...
