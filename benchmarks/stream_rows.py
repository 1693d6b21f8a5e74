"""One stream over simulated workers: its rate against the ideal, and what was lost or doubled."""

from __future__ import annotations

import itertools
import os
import tempfile
import threading
import time
from array import array
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from paifuser_lab.measure.pages import resident_bytes
from paifuser_lab.records import Record, StreamReport
from paifuser_lab.streaming import Items, Opened, Stream

SERVICE_S = 0.036  # of a frame
GROUP = 4
MIXED = (1.0, 1.0, 1.0, 1.0, 1.5, 1.5, 3.0, 3.0)
STRAGGLER = (1.0,) * 7 + (20.0,)
FLEETS = {"mixed": MIXED, "straggler": STRAGGLER, "queue": (1.0,), "no queue": (1.0,) * 16}
PART = 0.01  # of a core, for an actor that sleeps
EngineName = Literal["threads", "ray"]
Moments = list[tuple[float, float]]  # when a result came, and its latency in ms


class SimulatedWorker(Opened):
    """A stage that sleeps for each frame; each worker claims the next factor of its time."""

    name = "sleep"

    def __init__(self, folder: str | Path, factors: Sequence[float]) -> None:
        self.folder, self.factors, self.service_s = str(folder), tuple(factors), SERVICE_S

    def open(self) -> None:
        for index in itertools.count():
            try:
                with open(Path(self.folder) / str(index), "x") as file:
                    file.write(str(os.getpid()))
            except FileExistsError:
                continue
            self.factor = self.factors[index % len(self.factors)]
            return

    def __call__(self, items: Any) -> list[Any]:
        time.sleep(len(items) * self.service_s * self.factor)
        return list(items)


class StreamRow(Record):
    """One stream: its rate against the ideal of its workers, and whether each frame came once."""

    case: str
    engine: EngineName
    workers: int
    frames: int
    frames_per_s: float
    ideal_per_s: float | None = None
    p50_ms: float
    p95_ms: float
    lost: int
    doubled: int
    in_order: bool
    hedged: int = 0
    sent_again: int = 0
    lost_workers: int = 0
    longest_gap_ms: float = 0.0
    grown_bytes: int | None = None  # of this process, from a quarter of the frames to the last

    @property
    def share(self) -> float | None:
        """Of the ideal."""
        return None if not self.ideal_per_s else self.frames_per_s / self.ideal_per_s


def simulated(case: str, engine: EngineName, seconds: float) -> StreamRow:
    """A fleet by its number of workers or its name, for about so many seconds."""
    factors = FLEETS.get(case) or (1.0,) * int(case)
    ideal = sum(1 / factor for factor in factors) / SERVICE_S
    options: dict[str, Any] = {}
    paced = None
    if case in ("queue", "no queue"):
        ideal = 1 / SERVICE_S * (3.2 if case == "no queue" else 1.0)
        paced = 1 / ideal if case == "no queue" else None
        options = {"group": 1} | ({"window": 3, "in_flight": 3} if case == "queue" else {})
    return timed_row(case, engine, factors, int(seconds * ideal), ideal, paced=paced, **options)


def timed_row(
    case: str,
    engine: EngineName,
    factors: Sequence[float],
    count: int,
    ideal: float | None,
    *,
    group: int = GROUP,
    paced: float | None = None,
    meanwhile: Callable[[Stream, threading.Event], None] | None = None,
    part: float = PART,
    payload: Callable[[int], Any] = lambda index: index,
    **options: Any,
) -> StreamRow:
    """`count` frames, timed once all workers have started; `meanwhile` runs on a thread, from then
    until the event that it is given.
    """
    if engine == "ray":
        options["options"] = {"num_cpus": part}
    warm, workers = 2 * GROUP * len(factors), len(factors)
    with tempfile.TemporaryDirectory() as folder:
        begin, is_over = threading.Event(), threading.Event()
        frames = _frames(count // group * group, warm, begin, paced, payload)
        stage = SimulatedWorker(folder, factors)
        stream = Stream(
            Items(frames, group=group), stage, engine=engine, workers=workers, **options
        )

        def accompany() -> None:
            begin.wait()
            if meanwhile is not None and not is_over.is_set():
                meanwhile(stream, is_over)

        companion = threading.Thread(target=accompany)
        companion.start()
        try:
            indices, moments, grown = _timed(stream, warm, begin, warm + count // 4)
        finally:
            is_over.set()
            begin.set()
            companion.join()
    timed = row(case, engine, workers, indices, moments, ideal=ideal, report=stream.report)
    return timed.model_copy(update={"grown_bytes": grown})


def _frames(
    count: int,
    warm: int,
    begin: threading.Event,
    paced: float | None,
    payload: Callable[[int], Any],
) -> Iterator[Any]:
    """Frames for each worker to start with, then, once all have started, those that are timed."""
    yield from map(payload, range(warm))
    begin.wait()
    begun = time.monotonic()
    for index in range(count):
        if paced is not None:
            time.sleep(max(begun + index * paced - time.monotonic(), 0.0))
        yield payload(warm + index)


def _timed(
    stream: Stream, warm: int, begin: threading.Event, weighed_at: int
) -> tuple[Sequence[int], Moments, int]:
    """The indices of all frames; of those timed, when each came and its latency; and by how much
    this process has grown since frame `weighed_at`.
    """
    # arrays, as the objects of lists would be growth, too
    indices, moments, latencies = array("q"), array("d"), array("d")
    before = 0
    for result in stream:
        indices.append(result.index)
        if result.index == weighed_at:
            before = resident_bytes()
        if result.index == warm - 1:
            while sum(node.state == "up" for node in stream.report.nodes) < (stream.workers or 1):
                time.sleep(0.01)
            begin.set()
            moments.append(time.monotonic())
            latencies.append(0.0)
        elif result.index >= warm and result.error is None:
            moments.append(time.monotonic())
            latencies.append(result.latency_ms)
    grown = resident_bytes() - before
    return indices, list(zip(moments, latencies, strict=True)), grown


def row(
    case: str,
    engine: EngineName,
    workers: int,
    indices: Sequence[int],
    moments: Moments,
    *,
    expected: int | None = None,
    ideal: float | None = None,
    report: StreamReport | None = None,
) -> StreamRow:
    """The row of what came; a frame that was set aside is lost, too."""
    frames = len(moments) - 1
    latencies = sorted(latency for _, latency in moments[1:])
    gaps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(moments)]
    known = set(indices)
    expected = max(indices) + 1 if expected is None else expected
    return StreamRow(
        case=case,
        engine=engine,
        workers=workers,
        frames=frames,
        frames_per_s=frames / (moments[-1][0] - moments[0][0]),
        ideal_per_s=ideal,
        p50_ms=latencies[frames // 2],
        p95_ms=latencies[int(0.95 * frames)],
        lost=expected - len(known) + (report.set_aside if report is not None else 0),
        doubled=len(indices) - len(known),
        in_order=list(indices) == sorted(indices),
        hedged=report.hedged if report is not None else 0,
        sent_again=report.sent_again if report is not None else 0,
        lost_workers=report.lost_nodes if report is not None else 0,
        longest_gap_ms=1e3 * max(gaps),
    )
