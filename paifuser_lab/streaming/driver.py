"""Runs a stream: a thread does what the dispatcher decides on each event, another reads."""

from __future__ import annotations

import queue
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from ..errors import PaifuserError, StreamError, first_line
from ..records import StreamReport
from .dispatcher import Dispatcher
from .pool import Answered, Asked, Ended, Event, Inbox, Joined, Lost, Pool, Read, Returned
from .source import Group, Source
from .stage import FrameError, Result
from .statistics import Statistics
from .worker import Answer

TICK_S = 0.5
LOOK_S = 1.0
HOPELESS_GROUPS, HOPELESS_FRAMES = 3, 8  # that many from the first on, all failed, end it
START_S = 120.0
# Workers that die on a group before its frames are sent one at a time, and then on a frame: the
# first answer of a worker that dies may be lost with it, so one death proves nothing.
DEATHS = 2
CORRUPT = 3  # arrivals with a wrong checksum before its frames are set aside


class Driver:
    """One run of a stream, from its start to its end."""

    def __init__(
        self,
        source: Source,
        pool: Pool,
        inbox: Inbox,
        dispatcher: Dispatcher,
        statistics: Statistics,
        *,
        decodes: bool = False,
    ) -> None:
        self.statistics, self.dispatcher = statistics, dispatcher
        self.state = "waiting"
        self.pool, self._inbox, self._decodes = pool, inbox, decodes
        self._reader = Reader(source, inbox, dispatcher.accepted)
        self._works: dict[int, Work] = {}
        self._outbox: queue.SimpleQueue[tuple[Result, ...] | None] = queue.SimpleQueue()
        self._lock = threading.Lock()
        self._error: BaseException | None = None
        self._looked_at = self._waiting_since = time.monotonic()
        self._reason = ""
        self._thread = threading.Thread(target=self._run, daemon=True, name="paifuser-driver")

    # from other threads

    def start(self) -> None:
        self._thread.start()

    def take(self) -> tuple[Result, ...] | None:
        """The next group's results; None after the last. Raises what ended the stream."""
        results = self._outbox.get()
        if results is None and self._error is not None:
            raise self._error
        return results

    def consumed(self) -> None:
        """The reader of the results is done with a group."""
        self.ask(self.dispatcher.consume)

    def ask(self, action: Callable[[], object]) -> None:
        """Have the driver's thread do something."""
        self._inbox.put(Asked(action))

    def pause(self, *, is_paused: bool = True) -> None:
        """Send nothing more, or go on."""

        def change() -> None:
            self.dispatcher.is_paused = is_paused
            if self.state in ("running", "paused"):
                self.state = "paused" if is_paused else "running"

        self.ask(change)

    def drain(self) -> None:
        """Read nothing more, and finish what was read."""

        def end() -> None:
            self.dispatcher.end()
            self.dispatcher.is_paused = False
            if self.state not in ("stopped", "failed"):
                self.state = "draining"

        self.ask(end)

    def stop(self) -> None:
        """End now; what is in flight is dropped."""
        self.ask(lambda: setattr(self, "state", "stopped"))

    def fail(self, error: BaseException) -> None:
        """End now, for a reason outside, as a sink that takes nothing more."""
        with self._lock:
            self._error, self.state, self.statistics.message = error, "failed", first_line(error)

    def close(self) -> None:
        """Stop, and wait until every worker has ended."""
        if self.state in ("waiting", "running", "paused", "draining"):
            self.stop()
        self._thread.join()

    def report(self) -> StreamReport:
        with self._lock:
            return self.statistics.report(self.dispatcher, self.state)

    # the driver's own thread

    def _run(self) -> None:
        try:
            self.pool.start()
            self._reader.start()
            while self.state not in ("stopped", "failed") and not self.dispatcher.is_over:
                self._wait()
        except BaseException as error:
            self._error = error
        finally:
            self._end()

    def _end(self) -> None:
        with self._lock:
            self.statistics.ended_at = time.monotonic()
            if self._error is not None:
                self.state, self.statistics.message = "failed", first_line(self._error)
            elif self.state not in ("stopped", "failed"):
                self.state = "finished"
        for close in (self._reader.close, self.pool.close):
            try:
                close()
            except BaseException as error:
                self._error = self._error or error
        self._outbox.put(None)

    def _wait(self) -> None:
        """Wait for something to happen, and do what follows from it."""
        now = time.monotonic()
        timeout = min(max(self.dispatcher.due_at(now) - now, 0.0), TICK_S)
        events: list[Event] = []
        try:
            events.append(self._inbox.get(timeout=timeout))
            while True:
                events.append(self._inbox.get_nowait())
        except queue.Empty:
            pass
        with self._lock:
            for event in events:
                self._handle(event)
            self._step(time.monotonic())

    def _step(self, now: float) -> None:
        for node, group in self.dispatcher.overdue(now):
            text = f"a stage hung for {self.dispatcher.timeout_s:g} s"
            self.statistics.mark("hung", node=node, group=group, text=text)
            self._lose(node, text)
            self.pool.kill(node)
        for node in self.dispatcher.departed():
            self.statistics.part(node, "left")
            self.pool.remove(node)
            self._reason = f"{node} was removed"
        for send in self.dispatcher.assign(now):
            work = self._works[send.group]
            if send.why == "hedge":
                self.statistics.hedge(send.node, send.group)
            elif send.why == "again":
                self.statistics.mark("sent again", node=send.node, group=send.group)
            self.pool.send(send.node, work.group, work.parts[0] if work.parts else None)
        self._release(now)
        self._reader.grant(self.dispatcher.room)
        if now - self._looked_at >= LOOK_S:
            self._looked_at = now
            self.pool.look()
        self._check_workers(now)

    def _release(self, now: float) -> None:
        for sequence in self.dispatcher.release():
            results = self._works.pop(sequence).results(now)
            self.statistics.deliver(results)
            self._outbox.put(results)
        failed, statistics = self.statistics.failed_in, self.statistics
        is_begun = statistics.groups >= HOPELESS_GROUPS and statistics.frames >= HOPELESS_FRAMES
        if is_begun and failed.total() == statistics.frames:
            last = statistics.set_aside[-1]
            raise StreamError(
                f"Each of the first {statistics.frames} frames failed, the last in '{last.stage}': "
                f"{last.message}; the stream was ended."
            )

    def _check_workers(self, now: float) -> None:
        if self.dispatcher.nodes:
            self._waiting_since = now
            self.statistics.message = ""
            return
        # one that has just started is announced in the inbox before it is not counted any more
        if self.pool.starting == 0 and self._inbox.empty():
            raise StreamError(f"No worker is left: {self._reason or 'none could start'}")
        waited = now - self._waiting_since
        if waited > LOOK_S:
            self.statistics.message = f"Waiting for {self.pool.missing()}."
        if waited > START_S:
            raise StreamError(
                f"No worker started within {START_S:g} s: waiting for {self.pool.missing()}."
            )

    # events

    def _handle(self, event: Event) -> None:
        match event:
            case Joined():
                self._on_joined(event)
            case Lost():
                self._reason = event.reason
                self._lose(event.node, event.reason)
            case Answered():
                self._on_answered(event)
            case Returned():
                self.dispatcher.give_back(event.node, event.group, time.monotonic())
            case Read():
                self._on_read(event)
            case Ended():
                self._on_ended(event.error)
            case Asked():
                event.action()

    def _on_joined(self, event: Joined) -> None:
        self.dispatcher.join(event.node)
        self.statistics.join(event.node, event.host)
        if self.state == "waiting":
            self.state = "paused" if self.dispatcher.is_paused else "running"

    def _lose(self, node: str, reason: str) -> None:
        known = self.dispatcher.nodes.get(node)
        serving = next(iter(known.flights), None) if known is not None else None
        self.statistics.part(node, "lost", reason)
        self.dispatcher.lose(node)
        if serving is not None and self.dispatcher.is_open(serving):
            work = self._works[serving]
            work.death(f"a worker was lost on it {work.deaths + 1} times: {reason}")
            self._settle(work)

    def _on_answered(self, event: Answered) -> None:
        now, answer = time.monotonic(), event.answer
        work = self._works.get(event.group)
        if answer.refusal:
            raise StreamError(answer.refusal)
        took = sum(answer.stage_s)
        if work is None or not self.dispatcher.is_open(event.group):
            self.statistics.counts["duplicate"] += 1
            self.dispatcher.answer(event.node, event.group, now, took)
            return
        if answer.is_corrupt:
            self.statistics.mark("corrupt", node=event.node, group=event.group)
            work.corrupt()
        elif work.take(event.node, event.offsets, answer):
            waited = now - work.read_at
            self.statistics.answer(event.node, len(answer.values), answer.stage_s, waited)
            if event.offsets is None:
                self.dispatcher.answer(event.node, event.group, now, took)
                return
        else:
            self.statistics.counts["duplicate"] += 1
        # what it took says nothing about a whole group
        self.dispatcher.give_back(event.node, event.group, now)
        self._settle(work)

    def _settle(self, work: Work) -> None:
        """Count a group as answered once all its frames are."""
        if work.is_complete:
            self.dispatcher.answer("", work.group.sequence, time.monotonic())

    def _on_read(self, event: Read) -> None:
        self._reader.granted -= 1
        if self.dispatcher.is_ended:
            return
        group = event.group
        work = self._works[group.sequence] = Work(group, event.at, self._decodes)
        self.dispatcher.accept(group.sequence, float(max(group.count, 1)))
        self._settle(work)  # a group may be empty

    def _on_ended(self, error: BaseException | None) -> None:
        if error is None:
            self.dispatcher.end()
        elif isinstance(error, PaifuserError):
            raise error
        else:
            raise StreamError(
                f"The source failed after group {self.dispatcher.accepted - 1}: "
                f"{type(error).__name__}: {first_line(error)}"
            ) from error


class Reader:
    """Puts groups into the driver's inbox; each takes one permit."""

    def __init__(self, source: Source, inbox: Inbox, start: int) -> None:
        self.granted = 0
        self._source, self._inbox, self._start = source, inbox, start
        self._permits = threading.Semaphore(0)
        self._is_over = False
        self._thread = threading.Thread(target=self._run, daemon=True, name="paifuser-reader")

    def start(self) -> None:
        self._thread.start()

    def grant(self, room: int) -> None:
        """Let it read as many groups as there is room for, those granted before included."""
        if room > self.granted:
            self._permits.release(room - self.granted)
            self.granted = room

    def close(self) -> None:
        """End; a source that blocks is left behind on its thread."""
        self._is_over = True
        self._permits.release()  # it waits no longer
        if self._thread.is_alive():
            self._thread.join(1.0)

    def _run(self) -> None:
        try:
            self._read()
        except BaseException as error:
            self._inbox.put(Ended(error))
        else:
            self._inbox.put(Ended())

    def _read(self) -> None:
        groups = self._source.groups(self._start)
        try:
            while self._permits.acquire() and not self._is_over:
                group = next(groups, None)
                if group is None:
                    return
                if group.checksum is None:
                    group = group.sealed()
                self._inbox.put(Read(group, time.monotonic()))
        finally:
            close = getattr(groups, "close", None)
            if close is not None:
                close()


@dataclass
class Work:
    """One group between reading and delivering.

    `parts` is None while the group is sent whole. After two workers have died on it, its frames are
    sent one at a time, so that only the one that kills is set aside; before them, if the first
    stage decodes, comes an empty part that only decodes.
    """

    group: Group
    read_at: float
    decodes: bool = False
    deaths: int = 0
    part_deaths: int = 0
    arrived_corrupt: int = 0
    parts: list[tuple[int, ...]] | None = None
    values: dict[int, Any] = field(default_factory=dict)
    node: str = ""

    @property
    def is_complete(self) -> bool:
        """Whether every frame has a value or an error."""
        return len(self.values) == self.group.count

    def take(self, node: str, offsets: tuple[int, ...] | None, answer: Answer) -> bool:
        """Keep an answer; returns whether it brought anything new."""
        if self.is_complete or (offsets is not None and offsets not in (self.parts or ())):
            return False
        self.node = node
        frames = range(self.group.count) if offsets is None else offsets
        for offset, value in zip(frames, answer.values, strict=True):
            self.values.setdefault(offset, value)
        if self.parts and offsets is not None:
            self.parts.remove(offsets)
            self.part_deaths = 0
        return True

    def death(self, reason: str) -> None:
        """A worker died or hung while it had the group."""
        self.deaths += 1
        if self.parts:
            self.part_deaths += 1
            if self.part_deaths < DEATHS:
                return
            self.part_deaths = 0
            part = self.parts.pop(0)
            self._fail(part if part else range(self.group.count), reason)
        elif self.deaths >= DEATHS and self.group.count == 1 and not self.decodes:
            self._fail((0,), reason)
        elif self.deaths >= DEATHS:
            singles = [(offset,) for offset in range(self.group.count)]
            self.parts = [(), *singles] if self.decodes else [*singles]

    def corrupt(self) -> None:
        """It arrived with another checksum."""
        self.arrived_corrupt += 1
        if self.arrived_corrupt >= CORRUPT:
            self._fail(
                range(self.group.count), f"its bytes arrived changed {CORRUPT} times in a row"
            )

    def results(self, now: float) -> tuple[Result, ...]:
        """The results of its frames, in order."""
        latency_ms = 1e3 * (now - self.read_at)
        return tuple(
            Result(self.group.first + offset, None, latency_ms, self.node, value)
            if isinstance(value := self.values[offset], FrameError)
            else Result(self.group.first + offset, value, latency_ms, self.node)
            for offset in range(self.group.count)
        )

    def _fail(self, offsets: Any, reason: str) -> None:
        for offset in offsets:
            self.values.setdefault(offset, FrameError("worker", reason))
