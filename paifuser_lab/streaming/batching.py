"""Dynamic batching: a batch closes when it is full or its first item has waited long enough."""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from dataclasses import dataclass
from typing import Any

from ..arguments import check_count
from ..errors import StreamError


@dataclass(frozen=True)
class BatchRule:
    """At most `count` items, and `delay_ms` from the first to the call; None: until it is full."""

    count: int = 8
    delay_ms: float | None = 5.0

    def __post_init__(self) -> None:
        check_count("count", self.count, error=StreamError)
        if self.delay_ms is not None and not 0 <= self.delay_ms < float("inf"):
            raise StreamError(
                f"A delay of {self.delay_ms!r} ms is not possible; give 0 or more, or None."
            )


class Batcher:
    """Answers single items with calls on batches of them, on one thread.

    `call` receives a list and returns one of the same length. At most `capacity` items wait;
    `submit` refuses one more with StreamError. An item whose future is cancelled before its call
    leaves the queue. `close` answers those that wait, and ends the thread.
    """

    def __init__(
        self,
        call: Callable[[list[Any]], Sequence[Any]],
        rule: BatchRule | None = None,
        *,
        capacity: int = 1024,
    ) -> None:
        self.rule = rule or BatchRule()
        self.capacity = capacity
        self._call = call
        self._waiting: deque[tuple[float, Any, Future[Any]]] = deque()
        self._changed = threading.Condition()
        self._is_closing = False
        self.sizes: dict[int, int] = {}  # how many calls had each size
        self._thread = threading.Thread(target=self._run, daemon=True, name="paifuser-batcher")
        self._thread.start()

    @property
    def waiting(self) -> int:
        """How many items wait for a call."""
        with self._changed:
            return sum(not future.cancelled() for _, _, future in self._waiting)

    def submit(self, item: Any) -> Future[Any]:
        """Queue an item; its answer, or the error of its call, arrives in the future."""
        future: Future[Any] = Future()
        with self._changed:
            if self._is_closing:
                raise StreamError("This batcher is closed; open another.")
            if len(self._waiting) >= self.capacity:
                live = (entry for entry in self._waiting if not entry[2].cancelled())
                self._waiting = deque(live)
            if len(self._waiting) >= self.capacity:
                raise StreamError(
                    f"{self.capacity} items wait already; send fewer at once, or raise `capacity`."
                )
            self._waiting.append((time.monotonic(), item, future))
            self._changed.notify()
        return future

    def close(self, timeout_s: float | None = None) -> None:
        """Answer what waits, then end; `submit` raises from now on."""
        with self._changed:
            self._is_closing = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while (batch := self._next()) is not None:
            if batch:
                self.sizes[len(batch)] = self.sizes.get(len(batch), 0) + 1
                self._answer(batch)

    def _next(self) -> list[tuple[Any, Future[Any]]] | None:
        """Wait for the next batch, empty if all its callers have given up; None after the last."""
        with self._changed:
            while True:
                if len(self._waiting) >= self.rule.count or (self._waiting and self._is_closing):
                    break
                if self._is_closing:
                    return None
                wait = self._seconds_left()
                if wait is not None and wait <= 0:
                    break
                self._changed.wait(wait)
            batch: list[tuple[Any, Future[Any]]] = []
            while self._waiting and len(batch) < self.rule.count:
                _, item, future = self._waiting.popleft()
                # a caller that has given up takes no place in a call
                if future.set_running_or_notify_cancel():
                    batch.append((item, future))
            return batch

    def _seconds_left(self) -> float | None:
        if not self._waiting or self.rule.delay_ms is None:
            return None
        return self._waiting[0][0] + self.rule.delay_ms / 1e3 - time.monotonic()

    def _answer(self, batch: list[tuple[Any, Future[Any]]]) -> None:
        try:
            answers = self._call([item for item, _ in batch])
            if len(answers) != len(batch):
                raise StreamError(
                    f"The batched function returned {len(answers)} answers for {len(batch)} items; "
                    "return one for each."
                )
        except BaseException as error:
            for _, future in batch:
                future.set_exception(error)
            return
        for (_, future), answer in zip(batch, answers, strict=True):
            future.set_result(answer)
