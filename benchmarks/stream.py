"""Streams over simulated workers: rate against the ideal, faults, overhead a frame, queues.

A worker's service is a sleep, so these figures are of the machinery, not of a network or of models.
The workers are threads, or actors of a real Ray on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import Annotated, ClassVar

import typer

from paifuser_lab.bench.runner import (
    INTERRUPTED,
    BenchRecord,
    Columns,
    Keep,
    measure_each,
    measured,
)
from paifuser_lab.bench.stream_batching import measure as measure_batching
from paifuser_lab.bench.text import number
from paifuser_lab.errors import NO_RESULT, MeasureError, StoppedError, keep_when_stopped
from paifuser_lab.records import BatchingCurve

from .stream_faults import APART, one_ray, workers_killed
from .stream_overhead import Overhead, overheads
from .stream_rows import SERVICE_S, EngineName, StreamRow, simulated

FLEETS = ("1", "2", "4", "8", "16", "mixed", "straggler", "queue", "no queue")
ENGINES: tuple[EngineName, ...] = ("threads", "ray")
Case = Callable[[], StreamRow]


class StreamBench(BenchRecord):
    """The result of `python -m benchmarks stream`."""

    caption = "streams on {0.machine}, {0.service_ms:.0f} ms of sleep a frame"
    service_ms: float
    rows: tuple[StreamRow, ...] = ()
    overheads: tuple[Overhead, ...] = ()
    batching: BatchingCurve | None = None
    elapsed_s: float = 0.0
    columns: ClassVar[Columns] = {
        "case": "case",
        "engine": "engine",
        "workers": "workers",
        "frames": lambda row: f"{row.frames:,}",
        "frames/s": lambda row: number(row.frames_per_s),
        "of ideal": lambda row: "–" if row.share is None else f"{row.share:.2f}",
        "p50, ms": lambda row: number(row.p50_ms),
        "p95, ms": lambda row: number(row.p95_ms),
        "lost, doubled": lambda row: (
            f"{row.lost}, {row.doubled}" + ("" if row.in_order else ", not in order")
        ),
        "workers lost": "lost_workers",
        "longest gap, ms": lambda row: number(row.longest_gap_ms),
        "grown, MB": lambda row: "–" if row.grown_bytes is None else f"{row.grown_bytes / 1e6:.1f}",
    }

    @property
    def summary(self) -> str:
        """Overheads and failures, a line each."""
        lines = [
            f"{row.way}: {row.p50_ms:.3f} ms a frame, p95 {row.p95_ms:.3f}"
            + (f" ({row.note})" if row.note else "")
            for row in self.overheads
        ]
        return "\n".join([*lines, *self.failed, f"measured in {self.elapsed_s:.0f} s"])


OVERHEADS: Columns = {
    "a frame that nothing is done with": "way",
    "p50, ms": lambda row: number(row.p50_ms),
    "p95, ms": lambda row: number(row.p95_ms),
    "": lambda row: row.note,
}
BATCHING: Columns = {
    "rule": "rule",
    "offered/s": lambda point: number(point.offered_per_s),
    "answered/s": lambda point: number(point.answered_per_s),
    "p50, ms": lambda point: number(point.p50_ms),
    "p95, ms": lambda point: number(point.p95_ms),
    "p99, ms": lambda point: number(point.p99_ms),
    "in a call": lambda point: number(point.mean_batch),
}


def bench(
    engines: Annotated[
        list[str] | None, typer.Argument(help="threads, ray; both where none is named.")
    ] = None,
    *,
    seconds: Annotated[float, typer.Option(help="Time for each stream.", min=0.1)] = 8.0,
    keep: Keep = lambda record: None,
) -> StreamBench:
    """Run streams over simulated workers: rate against the ideal, faults, overhead, batching."""
    if unknown := set(engines or ()) - set(ENGINES):
        raise MeasureError(f"{sorted(unknown)} are no engines; there are {', '.join(ENGINES)}.")
    chosen = [name for name in ENGINES if name in (engines or ENGINES)]
    run = _Run(keep)
    with keep_when_stopped() as ending, ExitStack() as ray:
        run.measure(chosen, seconds, ray)
    if ending.is_stopped:
        run.failures[INTERRUPTED] = "the results until then are shown"
    return run.record()


class _Run:
    """What is measured so far."""

    def __init__(self, keep: Keep) -> None:
        self.keep, self.begun = keep, time.monotonic()
        self.rows: list[StreamRow] = []
        self.overheads: tuple[Overhead, ...] = ()
        self.batching: BatchingCurve | None = None
        self.failures: dict[str, str] = {}

    def measure(self, engines: Sequence[EngineName], seconds: float, ray: ExitStack) -> None:
        """Every part; `ray` ends the Ray that they share."""
        if "ray" in engines:
            self._each({"ray": lambda: ray.enter_context(one_ray())}, "clusters")
        present = [engine for engine in engines if engine not in self.failures]
        self._each({name: self._row(case) for name, case in _shared(present, seconds).items()})
        self.overheads, missing = overheads(present)
        self._note(missing)
        self.batching = measure_batching()
        self.keep(self.record())
        if "ray" in present:
            apart = {f"ray, {name}": partial(case, seconds) for name, case in APART.items()}
            self._each({name: self._row(case) for name, case in apart.items()})

    def record(self) -> StreamBench:
        """What there is."""
        return StreamBench(
            service_ms=1e3 * SERVICE_S,
            rows=tuple(self.rows),
            overheads=self.overheads,
            batching=self.batching,
            failures=self.failures,
            elapsed_s=time.monotonic() - self.begun,
        )

    def _row(self, case: Case) -> Callable[[], None]:
        def measure() -> None:
            self.rows.append(measured(case))
            self.keep(self.record())

        return measure

    def _each(self, cases: Mapping[str, Callable[[], object]], what: str = "streams") -> None:
        self._note(measure_each(tuple(cases), lambda name: cases[name](), what))

    def _note(self, failures: Mapping[str, str]) -> None:
        self.failures |= failures
        if INTERRUPTED in failures:
            raise StoppedError(NO_RESULT)


def _shared(engines: Sequence[EngineName], seconds: float) -> dict[str, Case]:
    """The cases that run in this process, on one Ray."""
    cases: dict[str, Case] = {
        f"{engine}, {case}": partial(simulated, case, engine, seconds)
        for engine in engines
        for case in FLEETS
    }
    if "ray" in engines:
        cases["ray, workers killed"] = partial(workers_killed, seconds)
    return cases
