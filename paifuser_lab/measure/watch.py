"""Watch the machine during a measurement: what other processes and other threads of this one took,
and the clock's frequency.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import NamedTuple, TypeVar

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
UNNAMED = "unnamed processes"  # small ones, those that ended, and those that cannot be seen
MIDDLE = (5, 95)  # percentiles of the rounds that a spread is taken between
MIN_ROUNDS = 5  # for a spread
Key = TypeVar("Key", bound=Hashable)


class Reading(NamedTuple):
    """What the cores have done so far, and the name and CPU seconds of every other process."""

    use: CoreUse
    processes: dict[tuple[int, float], tuple[str, float]]


class MachineWatch:
    """The machine's load since this object was made, by the thread that measures. A measurement
    of another thread in this one's pauses is no load.
    """

    def __init__(self) -> None:
        self._before = _read()
        self._paused: Reading | None = None  # since another thread has the turn

    @contextmanager
    def turn(self) -> Iterator[None]:
        """This thread's turn to measure; what others do until it comes does not count."""
        if not QUIET.acquire(blocking=False):
            self._paused = self._paused or _read()
            QUIET.acquire()
        try:
            if self._paused is not None:
                self._before = _moved_on(self._before, self._paused, _read())
                self._paused = None
            yield
        finally:
            try:
                if QUIET.is_awaited:
                    self._paused = _read()
            finally:
                QUIET.release()

    @property
    def others_share(self) -> float | None:
        """The share of the cores that other processes took; None after too short a time."""
        return self._share(self._paused.use if self._paused else core_use())

    def quality(
        self,
        *,
        waited_share: float | None = None,
        spread: float | None = None,
        sleeps: float | None = None,
        intervals: Sequence[tuple[float, float]] = (),
        with_processes: bool = True,
    ) -> Quality:
        """How quiet the machine was until now, with figures of the measurement itself."""
        now = (self._paused or _read()) if with_processes else None
        others = self.others_share if now is None else self._share(now.use)
        return Quality(
            others_share=others,
            waited_share=waited_share,
            spread=spread,
            sleeps=sleeps,
            clock_share=_CLOCK.share(),
            is_hopeless=bool(intervals) and all(is_useless(interval) for interval in intervals),
            busiest=self._busiest(now, others * now.use.cores) if now and others else (),
        )

    def _share(self, now: CoreUse) -> float | None:
        if now.wall_s - self._before.use.wall_s < MIN_WALL_S:
            return None
        return min(1.0, others_share(self._before.use, now))

    def _busiest(self, now: Reading, others_cores: float) -> tuple[BusyProcess, ...]:
        """Other programs and threads by the cores that they used, the busiest first; together
        they are what others took.
        """
        before, seconds = self._before, now.use.wall_s - self._before.use.wall_s
        threads = thread_seconds(before.use, now.use)
        spent = [(_thread_name(name), spent_s) for name, spent_s in threads.items()]
        for key, (name, spent_s) in now.processes.items():
            if key[0] not in now.use.serving_s:
                spent.append((name, spent_s - before.processes.get(key, (name, 0.0))[1]))
        used: dict[str, list[float]] = defaultdict(list)
        for name, spent_s in spent:
            if spent_s / seconds >= MIN_CORES:
                used[name].append(spent_s / seconds)
        busiest = sorted(used.items(), key=lambda item: -sum(item[1]))[:MAX_NAMED]
        cores = {_counted(name, len(each)): sum(each) for name, each in busiest}
        if (rest := others_cores - sum(cores.values())) >= MIN_CORES:
            cores[UNNAMED] = rest
        return tuple(
            BusyProcess(name=name, cores=round(count, 2))
            for name, count in sorted(cores.items(), key=lambda item: -item[1])
        )


def _read() -> Reading:
    return Reading(core_use(), _cpu_seconds())


def _moved_on(reading: Reading, since: Reading, until: Reading) -> Reading:
    """A reading moved on by what was used between two others, which then does not count."""
    start, paused, resumed = reading.use, since.use, until.use
    use = CoreUse(
        start.wall_s + resumed.wall_s - paused.wall_s,
        start.own_s + resumed.own_s - paused.own_s,
        start.busy_s + resumed.busy_s - paused.busy_s,
        start.cores,
        _later(start.other_threads_s, paused.other_threads_s, resumed.other_threads_s),
        _later(start.serving_s, paused.serving_s, resumed.serving_s),
    )
    before, at_pause, now = (
        {key: spent_s for key, (_, spent_s) in one.processes.items()}
        for one in (reading, since, until)
    )
    spent = _later(before, at_pause, now)
    return Reading(use, {key: (until.processes[key][0], spent[key]) for key in spent})


def _later(
    before: Mapping[Key, float], since: Mapping[Key, float], until: Mapping[Key, float]
) -> dict[Key, float]:
    """Counters of before, with what was counted between the other two."""
    return {key: before.get(key, 0.0) + count - since.get(key, 0.0) for key, count in until.items()}


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
