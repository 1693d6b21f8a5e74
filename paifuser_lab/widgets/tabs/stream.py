"""The section of a stream: speed, latency, workers, the frame, live in `StreamMonitor`."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from ...progress import is_static
from ...records import StreamReport
from ...streaming.sink import Watched
from ...views.stream import picture as picture_of
from ..panel import Monitor
from ..section import chart_section
from ..wire import pictured

EVERY_S = 0.2  # five times a second at most
IDLE_S = 1.0  # while no result comes, as when models load or a stage hangs


class StreamMonitor(Monitor):
    """A live view of a stream: `monitor.run(stream)`, or `for result in monitor.watch(stream): …`,
    with a displayed monitor.

    Where widgets cannot run, the record's figure stands in its place.
    """

    before = "The stream has not begun."

    def __init__(
        self, record: StreamReport | None = None, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__("stream", record)
        self._clock = clock
        self._shown_at: float | None = None
        self._photo = b""
        self._turn = threading.Lock()

    def __call__(self, report: StreamReport, picture: bytes = b"") -> None:
        """Show the report so far, with a JPEG of the current frame."""
        with self._turn:
            self.record = report
            self._photo = picture or self._photo
            self._shown_at = self._clock()
            if not is_static():
                self.data = pictured(picture_of(report, self._photo))

    @property
    def is_due(self) -> bool:
        """Whether the last report was shown long enough ago."""
        return self._shown_at is None or self._clock() - self._shown_at >= EVERY_S

    def watch(self, stream: Any) -> Iterator[Any]:
        """The stream's results as they come, shown five times a second, with their previews."""
        with self._shown(stream):
            for result in stream:
                self.follow(stream, [result])
                yield result

    def run(self, stream: Any) -> StreamReport:
        """Run the stream into its sink, and show it meanwhile."""
        sink = stream.sink
        stream.sink = Watched(sink, lambda results: self.follow(stream, results))
        try:
            with self._shown(stream):
                report: StreamReport = stream.run()
        finally:
            stream.sink = sink
        return report

    @contextmanager
    def _shown(self, stream: Any) -> Iterator[None]:
        """Show the stream before its first result, while none comes, and at its end."""
        is_over = threading.Event()

        def keep_showing() -> None:
            while not is_over.wait(IDLE_S):
                if self._clock() - (self._shown_at or 0.0) >= IDLE_S:
                    self(stream.report)

        watcher = threading.Thread(target=keep_showing, daemon=True, name="paifuser-monitor")
        self(stream.report)
        watcher.start()
        try:
            yield
        finally:
            is_over.set()
            watcher.join()
            self(stream.report)

    def follow(self, stream: Any, results: Sequence[Any]) -> None:
        """Show the stream with the latest of these results, if it is time to."""
        photos = [getattr(result.value, "preview", b"") for result in results]
        self._photo = next(filter(None, reversed(photos)), self._photo)
        if self.is_due:
            self(stream.report)


SECTION = chart_section(
    "stream",
    StreamReport,
    "stream",
    before=StreamMonitor.before,
    panel=StreamMonitor,
)
