"""Watch the machine during a measurement: what other processes and other threads of this one took,
and the clock's frequency.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress

import numpy
import psutil

from ..machine.host import CoreUse, core_use, others_share, own_cpus, thread_seconds
from ..machine.openmp import notebook_shell
from ..machine.turns import QUIET
from ..records import BusyProcess, Quality
from ..records.quality import is_useless
from .timing import Samples

MIN_WALL_S = 0.1  # below it, the system's counters of CPU time are too coarse
MIN_CORES = 0.05  # of a process, to be named
MAX_NAMED = 3
MIDDLE = (5, 95)  # percentiles of the rounds that a spread is taken between
MIN_ROUNDS = 5  # for a spread


class MachineWatch:
    """The machine's load since this object was made, by the thread that measures. A measurement
    of another thread in this one's pauses is no load.
    """

    def __init__(self) -> None:
        self._processes = _cpu_seconds()
        self._before = core_use()
        self._began_s = self._before.wall_s
        self._paused: CoreUse | None = None  # since another thread has the turn

    @contextmanager
    def turn(self) -> Iterator[None]:
        """This thread's turn to measure; what others do until it comes does not count."""
        if not QUIET.acquire(blocking=False):
            self._paused = self._paused or core_use()
            QUIET.acquire()
        try:
            if self._paused is not None:
                self._before = _moved_on(self._before, self._paused, core_use())
                self._paused = None
            yield
        finally:
            try:
                if QUIET.is_awaited:
                    self._paused = core_use()
            finally:
                QUIET.release()

    @property
    def others_share(self) -> float | None:
        """The share of the cores that other processes took; None after too short a time."""
        now = self._paused or core_use()
        if now.wall_s - self._before.wall_s < MIN_WALL_S:
            return None
        return min(1.0, others_share(self._before, now))

    def quality(
        self,
        *,
        waited_share: float | None = None,
        spread: float | None = None,
        rows_share: float | None = None,
        intervals: Sequence[tuple[float, float]] = (),
        with_processes: bool = True,
    ) -> Quality:
        """How quiet the machine was until now, with figures of the measurement itself."""
        others = self.others_share
        return Quality(
            others_share=others,
            waited_share=waited_share,
            spread=spread,
            rows_share=rows_share,
            clock_share=_CLOCK.share(),
            is_hopeless=bool(intervals) and all(is_useless(interval) for interval in intervals),
            busiest=self._busiest() if others and with_processes else (),
        )

    def _busiest(self) -> tuple[BusyProcess, ...]:
        """Other programs and threads by the cores that they used, the busiest first."""
        now = self._paused or core_use()
        seconds = now.wall_s - self._before.wall_s
        in_all_s = now.wall_s - self._began_s
        used: dict[str, list[float]] = defaultdict(list)
        for name, spent_s in thread_seconds(self._before, now).items():
            if spent_s / seconds >= MIN_CORES:
                used[_thread_name(name)].append(spent_s / seconds)
        for key, (name, spent_s) in _cpu_seconds().items():
            cores = (spent_s - self._processes.get(key, (name, 0.0))[1]) / in_all_s
            if cores >= MIN_CORES:
                used[name].append(cores)
        busiest = sorted(used.items(), key=lambda item: -sum(item[1]))[:MAX_NAMED]
        return tuple(
            BusyProcess(name=_counted(name, len(cores)), cores=round(sum(cores), 2))
            for name, cores in busiest
        )


def _moved_on(reading: CoreUse, since: CoreUse, until: CoreUse) -> CoreUse:
    """A reading moved on by what was used between two others, which then does not count."""
    threads = {
        key: reading.other_threads_s.get(key, 0.0) + seconds - since.other_threads_s.get(key, 0.0)
        for key, seconds in until.other_threads_s.items()
    }
    return CoreUse(
        reading.wall_s + until.wall_s - since.wall_s,
        reading.own_s + until.own_s - since.own_s,
        reading.busy_s + until.busy_s - since.busy_s,
        reading.cores,
        threads,
    )


def _thread_name(name: str) -> str:
    """A thread of this process as a person knows it."""
    is_main = name == threading.main_thread().name
    return "a cell of this notebook" if is_main and notebook_shell() else f"own thread '{name}'"


def _counted(name: str, count: int) -> str:
    return name if count == 1 else f"{name}, {count} processes"


def waited_share(samples: Sequence[Samples]) -> float | None:
    """The share of a call's time in which the process had less than one core."""
    shares = [
        max(0.0, 1 - sample.median_cpu_ms / sample.median_ms)
        for sample in samples
        if sample.cpu_ms and sample.median_ms
    ]
    return float(numpy.median(shares)) if shares else None


def spread(rounds_ms: Sequence[float]) -> float | None:
    """Half of the middle 90% of the rounds, over their median; None for too few rounds."""
    if len(rounds_ms) < MIN_ROUNDS:
        return None
    low, high = numpy.percentile(rounds_ms, MIDDLE)
    return float((high - low) / 2 / numpy.median(rounds_ms))


class Clock:
    """The highest clock rate of the process's cores, read when they have just been at work; a core
    without work runs slower, and says nothing.
    """

    def __init__(self) -> None:
        self._highest_mhz = 0.0

    def share(self) -> float | None:
        """The rate now over the highest one seen; None where the system does not tell it.

        The datasheet's highest rate is no measure: with all cores at work it is never reached.
        """
        with suppress(OSError, NotImplementedError, AttributeError):
            rates = dict(enumerate(psutil.cpu_freq(percpu=True)))
            now = max((rates[cpu].current for cpu in own_cpus() if cpu in rates), default=0.0)
            if now > 0:
                self._highest_mhz = max(self._highest_mhz, now)
                return float(now / self._highest_mhz)
        return None


_CLOCK = Clock()


def _cpu_seconds() -> dict[tuple[int, float], tuple[str, float]]:
    """The name and the CPU seconds of every other process, by its id and its start."""
    own = psutil.Process().pid
    spent = {}
    for process in psutil.process_iter():
        with suppress(psutil.Error):
            if process.pid != own:
                times = process.cpu_times()
                key = (process.pid, process.create_time())
                spent[key] = (process.name(), float(times.user + times.system))
    return spent
