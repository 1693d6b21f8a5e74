"""Streams over simulated workers: rate against the ideal, faults, overhead a frame, queues.

A worker's service is a sleep, so these figures are of the machinery, not of a network or of models.
The workers are threads, or actors of a real Ray on this machine.
"""

from __future__ import annotations

import itertools
import os
import queue
import random
import signal
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any, Literal

from ..machine import hardware
from ..records import BatchingCurve, Record, StreamReport
from ..streaming import Items, Opened, Stream
from .each import measure_each
from .stream_batching import measure as measure_batching

SERVICE_S = 0.036  # of a frame
GROUP = 4
WORKERS = (1, 2, 4, 8, 16)
MIXED = (1.0, 1.0, 1.0, 1.0, 1.5, 1.5, 3.0, 3.0)
STRAGGLER = (1.0,) * 7 + (20.0,)
KILL_EVERY_S = 5.0
EngineName = Literal["threads", "ray"]
ENGINES: tuple[EngineName, ...] = ("threads", "ray")


class SimulatedWorker(Opened):
    """A stage that sleeps for each frame; each worker claims the next factor of its time."""

    name = "sleep"

    def __init__(self, folder: str, factors: Sequence[float], service_s: float) -> None:
        self.folder, self.factors, self.service_s = folder, tuple(factors), service_s

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

    @property
    def share(self) -> float | None:
        """Of the ideal."""
        return None if not self.ideal_per_s else self.frames_per_s / self.ideal_per_s


class Overhead(Record):
    """Milliseconds of a frame that nothing is done with, one at a time."""

    way: str
    p50_ms: float
    p95_ms: float


class StreamBench(Record):
    """The result of `paifuser-lab bench stream`."""

    machine: str
    service_ms: float
    rows: tuple[StreamRow, ...] = ()
    overheads: tuple[Overhead, ...] = ()
    batching: BatchingCurve | None = None
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"streams on {self.machine}, {self.service_ms:.0f} ms of sleep a frame"

    @property
    def summary(self) -> str:
        """Overheads and failures, a line each."""
        lines = [
            f"{row.way}: {row.p50_ms:.3f} ms a frame, p95 {row.p95_ms:.3f}"
            for row in self.overheads
        ]
        return "\n".join([*lines, *(f"{name}: {why}" for name, why in self.failures.items())])

    def table(self) -> list[dict[str, str]]:
        """A row for each stream."""
        return [
            {
                "case": row.case,
                "engine": row.engine,
                "workers": str(row.workers),
                "frames/s": f"{row.frames_per_s:.1f}",
                "of ideal": "–" if row.share is None else f"{row.share:.2f}",
                "p50 / p95 ms": f"{row.p50_ms:.0f} / {row.p95_ms:.0f}",
                "lost, doubled": f"{row.lost}, {row.doubled}",
                "in order": "yes" if row.in_order else "no",
                "longest gap ms": f"{row.longest_gap_ms:.0f}",
            }
            for row in self.rows
        ] or [{"case": "nothing was measured"}]


def bench(*, engines: Sequence[EngineName] = ENGINES, seconds: float = 8.0) -> StreamBench:
    """Measure every case in each engine for about `seconds` each; failures are recorded."""
    cases: dict[str, tuple[str, EngineName]] = {}
    for engine in engines:
        for case in (*map(str, WORKERS), "mixed", "straggler", "kills", "queue", "no queue"):
            if not (case == "kills" and engine == "threads"):
                cases[f"{engine}, {case}"] = (case, engine)
    rows: list[StreamRow] = []
    failures = measure_each(
        tuple(cases), lambda name: rows.append(row_of(*cases[name], seconds)), "streams"
    )
    overheads: list[Overhead] = []
    failures |= measure_each(
        ("plain queues", *engines), lambda way: overheads.append(overhead_of(way)), "overheads"
    )
    return StreamBench(
        machine=hardware().label,
        service_ms=1e3 * SERVICE_S,
        rows=tuple(rows),
        overheads=tuple(overheads),
        batching=measure_batching(),
        failures=failures,
    )


def row_of(case: str, engine: EngineName, seconds: float) -> StreamRow:
    """One stream over simulated workers, timed once they have all started."""
    factors = {"mixed": MIXED, "straggler": STRAGGLER, "kills": (1.0,) * 6, "queue": (1.0,),
               "no queue": (1.0,) * 16}.get(case)  # fmt: skip
    factors = factors if factors is not None else (1.0,) * int(case)
    ideal = sum(1 / factor for factor in factors) / SERVICE_S
    options: dict[str, Any] = {}
    group, paced = GROUP, None
    if case in ("queue", "no queue"):
        group = 1
        ideal = 1 / SERVICE_S * (3.2 if case == "no queue" else 1.0)
        paced = 1 / ideal if case == "no queue" else None
        options = {"window": 3, "in_flight": 3} if case == "queue" else {}
    if engine == "ray":
        options["options"] = {"num_cpus": 0.01}
    count = int(seconds * ideal) // group * group
    with tempfile.TemporaryDirectory() as folder:
        stage = SimulatedWorker(folder, factors, SERVICE_S)
        begin = threading.Event()
        stream = Stream(
            Items(_frames(count, len(factors), begin, paced), group=group),
            stage,
            engine=engine,
            workers=len(factors),
            **options,
        )
        killer = threading.Thread(target=_kill, args=(folder, stream, begin), daemon=True)
        if case == "kills":
            killer.start()
        indices, moments = _timed(stream, len(factors), begin)
    return _row(case, engine, len(factors), stream.report, indices, moments, ideal)


def _frames(count: int, warm: int, begin: threading.Event, paced: float | None) -> Iterator[int]:
    """Frames for each worker to start with, then, once all have started, those that are timed."""
    yield from range(2 * GROUP * warm)
    begin.wait()
    begun = time.monotonic()
    for index in range(count):
        if paced is not None:
            time.sleep(max(begun + index * paced - time.monotonic(), 0.0))
        yield 2 * GROUP * warm + index


def _timed(
    stream: Stream, workers: int, begin: threading.Event
) -> tuple[list[int], list[tuple[float, float]]]:
    """The indices of all frames; of those timed, when each came and its latency."""
    indices: list[int] = []
    moments: list[tuple[float, float]] = []
    warm = 2 * GROUP * workers
    for result in stream:
        indices.append(result.index)
        if result.index == warm - 1:
            while sum(node.state == "up" for node in stream.report.nodes) < workers:
                time.sleep(0.01)
            begin.set()
            moments.append((time.monotonic(), 0.0))
        elif result.index >= warm:
            moments.append((time.monotonic(), result.latency_ms))
    return indices, moments


def _row(
    case: str,
    engine: EngineName,
    workers: int,
    report: StreamReport,
    indices: list[int],
    moments: list[tuple[float, float]],
    ideal: float,
) -> StreamRow:
    frames = len(moments) - 1
    latencies = sorted(latency for _, latency in moments[1:])
    gaps = [later[0] - earlier[0] for earlier, later in itertools.pairwise(moments)]
    expected = set(range(max(indices) + 1))
    return StreamRow(
        case=case,
        engine=engine,
        workers=workers,
        frames=frames,
        frames_per_s=frames / (moments[-1][0] - moments[0][0]),
        ideal_per_s=ideal,
        p50_ms=latencies[frames // 2],
        p95_ms=latencies[int(0.95 * frames)],
        lost=len(expected - set(indices)),
        doubled=len(indices) - len(set(indices)),
        in_order=indices == sorted(indices),
        hedged=report.hedged,
        sent_again=report.sent_again,
        lost_workers=report.lost_nodes,
        longest_gap_ms=1e3 * max(gaps),
    )


def _kill(folder: str, stream: Stream, begin: threading.Event) -> None:
    """Kill the process of one worker after another."""
    begin.wait()
    chance = random.Random(0)
    while stream.report.state == "running":
        up = [node.host for node in stream.report.nodes if node.state == "up"]
        process = int(chance.choice(up).rpartition(" ")[2])
        os.kill(process, signal.SIGKILL)
        time.sleep(KILL_EVERY_S)


def overhead_of(way: str, count: int = 2000) -> Overhead:
    """How long a frame takes that nothing is done with: one worker, one frame on its way."""
    latencies = _plain(count) if way == "plain queues" else _empty(way, count)
    ordered = sorted(latencies[count // 10 :])
    p50, p95 = (ordered[int(share * len(ordered))] for share in (0.5, 0.95))
    return Overhead(way=way, p50_ms=p50, p95_ms=p95)


def _empty(engine: Any, count: int) -> list[float]:
    options: dict[str, Any] = {"options": {"num_cpus": 0.01}} if engine == "ray" else {}
    stream = Stream(
        Items(range(count), group=1), _same, engine=engine, workers=1, window=1, **options
    )
    return [result.latency_ms for result in stream]


def _same(frame: Any) -> Any:
    return frame


def _plain(count: int) -> list[float]:
    """A thread between two queues."""
    there: queue.Queue[int | None] = queue.Queue()
    back: queue.Queue[int] = queue.Queue()

    def serve() -> None:
        while (frame := there.get()) is not None:
            back.put(_same(frame))

    thread = threading.Thread(target=serve, daemon=True)
    thread.start()
    latencies = []
    for frame in range(count):
        begun = time.monotonic()
        there.put(frame)
        back.get()
        latencies.append(1e3 * (time.monotonic() - begun))
    there.put(None)
    thread.join()
    return latencies
