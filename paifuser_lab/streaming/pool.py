"""The workers of a stream as its driver sees them, and those that are threads of this process."""

from __future__ import annotations

import copy
import itertools
import os
import queue
import threading
import time
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple, Protocol

from ..errors import first_line
from .source import Group
from .stage import Stage
from .worker import Answer, Worker

ATTEMPTS = 6  # deaths in a row, a worker, before no other is started
JOIN_S = 1.0  # workers that do not end in this time are left behind: they hang in a stage


def default_workers() -> int:
    """How many workers one machine has where their number is not given."""
    return min(4, os.cpu_count() or 1)


class Joined(NamedTuple):
    """A worker has opened its stages."""

    node: str
    host: str = ""


class Lost(NamedTuple):
    """A worker is gone, or could not open."""

    node: str
    reason: str


class Answered(NamedTuple):
    """A worker has answered a group."""

    node: str
    group: int
    offsets: tuple[int, ...] | None
    answer: Answer


class Returned(NamedTuple):
    """A group did not reach a worker that is still alive."""

    node: str
    group: int


class Read(NamedTuple):
    """The source has yielded a group; `at` is when."""

    group: Group
    at: float


class Ended(NamedTuple):
    """The source has no more groups, or has raised."""

    error: BaseException | None = None


class Asked(NamedTuple):
    """Something that the driver is asked to do, by another thread."""

    action: Callable[[], Any]


Event = Joined | Lost | Answered | Returned | Read | Ended | Asked
Inbox = queue.SimpleQueue[Event]


class Pool(Protocol):
    """Starts workers, sends them groups, and puts what happens to them into the driver's inbox.

    Every worker that starts is announced by Joined or Lost, and a Joined one may be Lost later.
    """

    @property
    def starting(self) -> int:
        """How many workers have started and are neither joined nor lost."""

    def start(self) -> None:
        """Start the first workers."""

    def send(self, node: str, group: Group, offsets: tuple[int, ...] | None) -> None:
        """Send a group to a worker."""

    def kill(self, node: str) -> None:
        """End a worker that hangs, and start another; the driver has forgotten it."""

    def add(self) -> None:
        """Start one more worker."""

    def remove(self, node: str) -> None:
        """End a worker that holds nothing."""

    def look(self) -> None:
        """Notice machines that have come; called a few times a second."""

    def missing(self) -> str:
        """What the workers that have not started wait for."""

    def close(self) -> None:
        """End every worker."""


Order = tuple[Group, tuple[int, ...] | None] | None  # None ends the thread


class ThreadPool:
    """Each thread has its own shallow copies of the stages, and opens them."""

    def __init__(self, inbox: Inbox, stages: Sequence[Stage], workers: int | None = None) -> None:
        self.count = workers or default_workers()
        self.starting = 0
        self._inbox, self._stages = inbox, stages
        self._numbers = itertools.count()
        self._threads: dict[str, tuple[threading.Thread, queue.SimpleQueue[Order]]] = {}
        self._deaths = 0  # in a row
        self._lock = threading.Lock()
        self._is_closed = False

    def start(self) -> None:
        for _ in range(self.count):
            self.add()

    def add(self) -> None:
        name = f"thread-{next(self._numbers)}"
        orders: queue.SimpleQueue[Order] = queue.SimpleQueue()
        thread = threading.Thread(
            target=self._serve, args=(name, orders), daemon=True, name=f"paifuser-{name}"
        )
        with self._lock:
            self._threads[name] = (thread, orders)
            self.starting += 1
            thread.start()  # in the lock: who closes joins only what was started

    def send(self, node: str, group: Group, offsets: tuple[int, ...] | None) -> None:
        if (entry := self._threads.get(node)) is not None:
            entry[1].put((group, offsets))

    def kill(self, node: str) -> None:
        """A thread cannot be ended from outside: it is left, and ends after its call."""
        self.remove(node)
        if not self._is_closed:
            self.add()

    def remove(self, node: str) -> None:
        with self._lock:
            entry = self._threads.pop(node, None)
        if entry is not None:
            entry[1].put(None)

    def look(self) -> None:
        return

    def missing(self) -> str:
        return "the stages to open"

    def close(self) -> None:
        self._is_closed = True
        with self._lock:
            entries = list(self._threads.values())
            self._threads.clear()
        for _, orders in entries:
            orders.put(None)
        until = time.monotonic() + JOIN_S
        for thread, _ in entries:
            thread.join(max(until - time.monotonic(), 0.0))

    def _serve(self, name: str, orders: queue.SimpleQueue[Order]) -> None:
        worker = Worker([copy.copy(stage) for stage in self._stages])
        try:
            worker.open()
        except BaseException as error:
            self._end(name, first_line(error), is_open=False)
            return
        self._inbox.put(Joined(name, "this process"))
        with self._lock:
            self.starting -= 1
        try:
            while (order := orders.get()) is not None:
                group, offsets = order
                answer = worker.process(group, offsets)
                self._deaths = 0
                self._inbox.put(Answered(name, group.sequence, offsets, answer))
            worker.close()
        except BaseException as error:  # SystemExit in a stage ends the worker, not the stream
            self._end(name, f"{type(error).__name__}: {first_line(error)}", is_open=True)

    def _end(self, name: str, reason: str, *, is_open: bool) -> None:
        """Announce that a worker is lost, and start another unless many in a row died."""
        with self._lock:
            self._deaths += 1
            is_known = self._threads.pop(name, None) is not None
            may_go_on = is_open and self._deaths <= ATTEMPTS * self.count
        if is_known and may_go_on and not self._is_closed:
            self.add()
        if is_known:
            self._inbox.put(Lost(name, reason))
        if not is_open:
            with self._lock:
                self.starting -= 1
