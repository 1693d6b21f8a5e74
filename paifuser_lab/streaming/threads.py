"""Workers that are threads of this process: no other package, no copies of frames."""

from __future__ import annotations

import copy
import itertools
import queue
import threading
import time
from collections.abc import Sequence

from ..errors import first_line
from .pool import JOIN_S, Answered, Inbox, Joined, Lost, default_workers
from .source import Group
from .stage import Stage
from .worker import Worker

ATTEMPTS = 6  # workers in a row that died in one place before it is given up

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

    def look(self, now: float) -> None:
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
        is_replaced = is_known and may_go_on and not self._is_closed
        if is_replaced:
            self.add()
        if is_known:
            self._inbox.put(Lost(name, reason, is_replaced))
        if not is_open:
            with self._lock:
                self.starting -= 1
