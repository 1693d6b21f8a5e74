"""A stream: a source, stages on several workers, a sink; run whole, or read result by result."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncIterator, Generator, Mapping
from contextlib import AbstractContextManager, closing, nullcontext
from pathlib import Path
from typing import Any, Literal

from ..arguments import check_count
from ..errors import PaifuserError, StreamError, first_line
from ..records import StreamReport
from .dispatcher import Dispatcher
from .driver import Driver
from .journal import Journal, Position
from .pool import Inbox, Pool, ThreadPool
from .sink import Callback, Sink
from .source import Items, Source
from .stage import Result, Stage, as_stage
from .statistics import Statistics

Engine = Literal["threads", "ray"]
ENGINES = ("threads", "ray")
END = object()


class Stream:
    """Frames of a source through stages, each once and in order.

        Stream(frames, function).run()
        for result in Stream(source, decode, infer, engine="ray", address="auto"): ...

    `source` is a Source or any iterable of frames (or a function that returns one); a stage is a
    Stage or a function of one frame; `sink` a Sink or a function of a result. A frame on which a
    stage raises is set aside: its result has an `error`. Workers are threads, or with
    `engine="ray"` actors on the cluster at `address` (None starts one on this machine).

    `workers`: how many; by default up to four, or an actor on each machine of a cluster that runs.
    `in_flight`: groups that each worker holds. `window`: groups between the last one consumed and
    the last one read, four a worker by default. `hedge`: how many times its estimate the worker of
    the group that everything waits for may take before another gets it, too; None never.
    `timeout_s`: how long a worker may take for a group. `journal`: a file from which a restarted
    stream goes on behind the last group that its sink has taken. `options`: those of a Ray actor.
    """

    def __init__(
        self,
        source: Any,
        *stages: Any,
        sink: Any = None,
        engine: Engine = "threads",
        address: str | None = None,
        workers: int | None = None,
        in_flight: int = 2,
        window: int | None = None,
        hedge: float | None = 3.0,
        timeout_s: float = 60.0,
        journal: str | Path | None = None,
        options: Mapping[str, Any] | None = None,
    ) -> None:
        self.source: Source = source if isinstance(source, Source) else Items(source)
        self.stages: tuple[Stage, ...] = tuple(as_stage(stage) for stage in stages)
        self.sink: Sink | None = sink if sink is None or isinstance(sink, Sink) else Callback(sink)
        self.engine, self.address, self.workers = engine, address, workers
        self.in_flight, self.window, self.hedge = in_flight, window, hedge
        self.timeout_s, self.options, self.journal = timeout_s, options, journal
        self._check()
        self._driver: Driver | None = None
        self._lock = threading.Lock()

    def _check(self) -> None:
        if self.engine not in ENGINES:
            raise StreamError(f"engine={self.engine!r} is not known; give one of {ENGINES}.")
        for name in ("workers", "in_flight", "window"):
            value = getattr(self, name)
            if value is not None or name == "in_flight":
                check_count(name, value, error=StreamError)
        for name in ("hedge", "timeout_s"):
            value = getattr(self, name)
            if not (value is None and name == "hedge") and not value > 0:
                raise StreamError(f"{name}={value!r} is not possible; give more than 0.")
        if any(stage.takes_group for stage in self.stages[1:]):
            raise StreamError("A stage that decodes groups stands first; move it to the front.")
        if self.engine == "threads" and (self.address or self.options):
            raise StreamError("`address` and `options` are those of Ray; add engine='ray'.")
        if self.journal is None:
            return
        if not getattr(self.source, "can_reopen", False):
            raise StreamError(
                f"The source '{self.source.name}' cannot be read a second time, so a journal is of "
                "no use; leave it out."
            )
        if self.sink is not None and not self.sink.is_resumable:
            raise StreamError(
                f"The sink '{self.sink.name}' cannot go on behind the last group; leave out the "
                "journal, or take another sink."
            )

    @property
    def identity(self) -> str:
        """The source and the stages, as the journal knows them."""
        names = [self.source.name, *(stage.name for stage in self.stages)]
        return " → ".join([*names, self.sink.name] if self.sink and self.sink.name else names)

    @property
    def report(self) -> StreamReport:
        """The statistics, now or at the end; safe from any thread."""
        if self._driver is None:
            stages = tuple(stage.name for stage in self.stages)
            return StreamReport(
                source=self.source.name, engine=self.engine, state="waiting", stages=stages
            )
        return self._driver.report()

    def run(self) -> StreamReport:
        """Everything through to the sink; returns the report.

        After an error or Ctrl-C nothing half-written is left; `stop` and `drain` end it early, and
        the sink keeps what was delivered.
        """
        sink = self.sink or Callback(lambda _: None, name="none")
        with self._opened_journal() as journal:
            position = journal.position if journal is not None else Position()
            self._of_sink(sink.open, position.token)
            try:
                with closing(self._delivered(position)) as groups:
                    for results in groups:
                        token = self._of_sink(sink.write, results)
                        if journal is not None:
                            journal.commit(results, token)
            except BaseException:
                sink.abort()
                raise
            self._of_sink(sink.close)
        return self.report

    def __iter__(self) -> Generator[Result, None, None]:
        with self._opened_journal() as journal:
            position = journal.position if journal is not None else Position()
            with closing(self._delivered(position)) as groups:
                for results in groups:
                    yield from results
                    if journal is not None:
                        journal.commit(results, None)

    async def __aiter__(self) -> AsyncIterator[Result]:
        """The results, waited for on another thread, so that the event loop goes on."""
        results = iter(self)
        step: asyncio.Future[Any] | None = None
        try:
            while True:
                step = asyncio.ensure_future(asyncio.to_thread(next, results, END))
                result = await asyncio.shield(step)
                if result is END:
                    return
                yield result
        finally:
            if step is not None and not step.done():  # cancelled while a result was waited for
                self.stop()
                await asyncio.wait([step])
            await asyncio.to_thread(results.close)

    def pause(self) -> None:
        """Send nothing more until `resume`; what is in flight is finished."""
        self._running.pause()

    def resume(self) -> None:
        """Go on after a pause."""
        self._running.pause(is_paused=False)

    def drain(self) -> None:
        """Read nothing more, finish what was read, and end."""
        self._running.drain()

    def stop(self) -> None:
        """End now, behind the last group delivered."""
        self._running.stop()

    def add_worker(self) -> None:
        """Start one more worker."""
        driver = self._running
        driver.ask(driver.pool.add)

    def remove_worker(self, name: str) -> None:
        """Let a worker finish what it holds, and end it."""
        driver = self._running
        known = [node.name for node in driver.report().nodes if node.state == "up"]
        if name not in known:
            raise StreamError(f"There is no worker '{name}'; there are {', '.join(known)}.")
        driver.ask(lambda: driver.dispatcher.leave(name))

    @property
    def _running(self) -> Driver:
        if self._driver is None:
            raise StreamError("This stream has not begun; call run(), or iterate over it.")
        return self._driver

    def _opened_journal(self) -> AbstractContextManager[Journal | None]:
        return (
            nullcontext() if self.journal is None else closing(Journal(self.journal, self.identity))
        )

    def _of_sink(self, method: Any, *arguments: Any) -> Any:
        try:
            return method(*arguments)
        except Exception as error:
            name = self.sink.name if self.sink is not None else "none"
            sentence = f"The sink '{name}' failed: {type(error).__name__}: {first_line(error)}"
            failure = error if isinstance(error, PaifuserError) else StreamError(sentence)
            if self._driver is not None:
                self._driver.fail(failure)
            if failure is error:
                raise
            raise failure from error

    def _delivered(self, position: Position) -> Generator[tuple[Result, ...], None, None]:
        """The groups in order, while a driver runs."""
        with self._lock:
            if self._driver is not None and self._driver.report().state not in (
                "finished", "stopped", "failed",
            ):  # fmt: skip
                raise StreamError("This stream runs already; wait for its end, or make another.")
            driver = self._driver = self._new_driver(position)
            driver.start()
        expected = position.frames
        try:
            while (results := driver.take()) is not None:
                if results and results[0].index != expected:
                    raise StreamError(
                        f"The source '{self.source.name}' now has frame {results[0].index} where "
                        f"{expected} was expected; it has changed since the journal was written."
                    )
                expected += len(results)
                yield results
                driver.consumed()
        finally:
            driver.close()

    def _new_driver(self, position: Position) -> Driver:
        inbox: Inbox = Inbox()
        statistics = Statistics(
            source=self.source.name,
            engine=self.engine,
            stages=[stage.name for stage in self.stages],
            sink=self.sink.name if self.sink is not None else "",
            expected=self.source.frames,
        )
        if position.groups:
            statistics.resumed_at = position.frames
        dispatcher = Dispatcher(
            start=position.groups,
            limit=self.in_flight,
            window=self.window,
            hedge=self.hedge,
            timeout_s=self.timeout_s,
        )
        return Driver(
            self.source,
            self._new_pool(inbox),
            inbox,
            dispatcher,
            statistics,
            decodes=bool(self.stages) and self.stages[0].takes_group,
        )

    def _new_pool(self, inbox: Inbox) -> Pool:
        if self.engine == "threads":
            return ThreadPool(inbox, self.stages, self.workers)
        from .actors import ActorPool

        return ActorPool(
            inbox, self.stages, self.workers, address=self.address, options=self.options
        )
