"""Streams over simulated workers: rate against the ideal, faults, overhead a frame, queues.

A worker's service is a sleep, so these figures are of the machinery, not of a network or of models.
The workers are threads, or actors of a real Ray on this machine.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial

from paifuser_lab.bench.each import INTERRUPTED, measure_each, measured
from paifuser_lab.bench.stream_batching import measure as measure_batching
from paifuser_lab.errors import StoppedError
from paifuser_lab.machine import machine_label
from paifuser_lab.records import BatchingCurve, Record
from paifuser_lab.stopping import NO_RESULT, keep_when_stopped

from .stream_faults import APART, one_ray, workers_killed
from .stream_overhead import Overhead, overheads
from .stream_rows import SERVICE_S, EngineName, StreamRow, simulated

FLEETS = ("1", "2", "4", "8", "16", "mixed", "straggler", "queue", "no queue")
ENGINES: tuple[EngineName, ...] = ("threads", "ray")
Case = Callable[[], StreamRow]


class StreamBench(Record):
    """The result of `python -m benchmarks stream`."""

    machine: str
    service_ms: float
    rows: tuple[StreamRow, ...] = ()
    overheads: tuple[Overhead, ...] = ()
    batching: BatchingCurve | None = None
    failures: dict[str, str] = {}
    elapsed_s: float = 0.0

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"streams on {self.machine}, {self.service_ms:.0f} ms of sleep a frame"

    @property
    def summary(self) -> str:
        """Overheads and failures, a line each."""
        lines = [
            f"{row.way}: {row.p50_ms:.3f} ms a frame, p95 {row.p95_ms:.3f}"
            + (f" ({row.note})" if row.note else "")
            for row in self.overheads
        ]
        lines += [f"{name}: {why}" for name, why in self.failures.items()]
        return "\n".join([*lines, f"measured in {self.elapsed_s:.0f} s"])

    def table(self) -> list[dict[str, str]]:
        """A row for each stream."""
        return [
            {
                "case": row.case,
                "engine": row.engine,
                "workers": str(row.workers),
                "frames": str(row.frames),
                "frames/s": f"{row.frames_per_s:.1f}",
                "of ideal": "–" if row.share is None else f"{row.share:.2f}",
                "p50 / p95 ms": f"{row.p50_ms:.0f} / {row.p95_ms:.0f}",
                "lost, doubled": f"{row.lost}, {row.doubled}",
                "in order": "yes" if row.in_order else "no",
                "workers lost": str(row.lost_workers),
                "longest gap ms": f"{row.longest_gap_ms:.0f}",
                "grown MB": "–" if row.grown_bytes is None else f"{row.grown_bytes / 1e6:.1f}",
            }
            for row in self.rows
        ] or [{"case": "nothing was measured"}]


def bench(
    *,
    engines: Sequence[EngineName] = ENGINES,
    seconds: float = 8.0,
    keep: Callable[[StreamBench], object] = lambda _: None,
) -> StreamBench:
    """Measure every case in each engine for about `seconds` each; failures are recorded.

    `keep` gets what there is so far, after each case.
    """
    run = _Run(keep)
    with keep_when_stopped() as ending, ExitStack() as ray:
        run.measure(engines, seconds, ray)
    if ending.is_stopped:
        run.failures[INTERRUPTED] = "the results until then are shown"
    return run.record()


class _Run:
    """What is measured so far."""

    def __init__(self, keep: Callable[[StreamBench], object]) -> None:
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
            machine=machine_label(),
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
