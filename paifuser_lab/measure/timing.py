"""Latency in interleaved pairs, peak memory and FLOPs.

On a shared machine the speed drifts by the minute. Candidates therefore take turns, round after
round in shuffled order, and a ratio is formed within each round, where the drift is the same for
both. A turn begins when the threads of the previous turn sleep, and its first call is not counted:
it warms the caches and wakes the threads.
"""

from __future__ import annotations

import gc
import random
import time
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy
import torch
from torch import nn

from ..errors import MeasureError
from ..machine import threads
from ..machine.openmp import sleeps
from ..machine.turns import QUIET
from ..model.flops import counter
from .pages import page_faults

TURN_S = 0.03
MAX_CALLS_PER_TURN = 50
SLEEP_S = 0.012  # the kernel counts the time of running threads in ticks of up to 10 ms
MAX_SLEEPS = 20
RESAMPLES = 2000
NORMAL_975 = 1.959964
PRIOR_CORRELATION, PRIOR_ROUNDS = 0.6, 5  # prior autocorrelation of rounds, and its weight
MAX_CORRELATION, MIN_DEGREES = 0.9, 2
ROUNDS, FEWEST, WARM = 60, 5, 2  # of calls timed one by one: at most, at least, warm-up
QUANTILE = 0.1
Name = TypeVar("Name", bound=Hashable)
Clock = Callable[[Callable[[], Any], torch.device], float]  # the ms of one call
Floats = numpy.ndarray[Any, numpy.dtype[numpy.float64]]


@dataclass(frozen=True)
class Candidate:
    """A call without arguments to time, the number of threads it runs with, and what is in force
    around its turns; entering and leaving that is not timed.
    """

    name: str
    call: Callable[[], Any]
    threads: int
    device: torch.device = torch.device("cpu")
    around: Callable[[], AbstractContextManager[object]] = nullcontext


@dataclass
class Samples:
    """The timings of one candidate: the median of each round's turn, and every single call."""

    rounds_ms: list[float] = field(default_factory=list)
    calls_ms: list[float] = field(default_factory=list)
    cpu_ms: list[float] = field(default_factory=list)
    page_faults: list[float] = field(default_factory=list)  # of a call in each round
    sleeps: list[float] = field(default_factory=list)  # of a call in each round

    @property
    def median_ms(self) -> float:
        return float(numpy.median(self.rounds_ms))

    @property
    def best_ms(self) -> float:
        return min(self.calls_ms)

    @property
    def spread_ms(self) -> tuple[float, float]:
        low, high = numpy.percentile(self.rounds_ms, [25, 75])
        return float(low), float(high)

    @property
    def median_cpu_ms(self) -> float:
        return float(numpy.median(self.cpu_ms))

    @property
    def median_page_faults(self) -> float | None:
        """The page faults of a call; None where the system does not count them."""
        return float(numpy.median(self.page_faults)) if self.page_faults else None

    @property
    def median_sleeps(self) -> float | None:
        """How often a call slept; None where the system does not count it."""
        return float(numpy.median(self.sleeps)) if self.sleeps else None


def rounds_in_turn(
    candidates: Sequence[Candidate],
    *,
    rounds: int,
    seconds: float,
    turn: Callable[[], AbstractContextManager[object]] = lambda: QUIET,
) -> Iterator[dict[str, Samples]]:
    """Time the candidates in turn and yield the samples so far after each round; the caller may
    stop after any round.

    Ends after `rounds`, or after `seconds` once five rounds are done. Each round is a `turn` of
    this thread; waiting for it takes none of the seconds.
    """
    samples = {candidate.name: Samples() for candidate in candidates}
    if len(samples) != len(candidates):
        raise MeasureError("Two candidates have the same name; give each its own.")
    with turn():
        calls = {candidate.name: _calls_per_turn(candidate) for candidate in candidates}
    order, shuffle = list(candidates), random.Random(0).shuffle
    spent_s = 0.0
    for done in range(rounds):
        if done >= 5 and spent_s > seconds:
            return
        shuffle(order)
        with turn(), no_collection():
            began = time.perf_counter()
            for candidate in order:
                _take_turn(candidate, calls[candidate.name], samples[candidate.name])
            spent_s += time.perf_counter() - began
        yield samples


def in_turn(
    calls: Mapping[Name, Callable[[], Any]],
    device: torch.device,
    seconds: float,
    clock: Clock | None = None,
) -> dict[Name, float]:
    """The undisturbed ms of each call, timed in turn in shuffled order, so that the machine's drift
    is the same for all.

    Other processes only slow a call down, a long one more often than a short one, so that medians
    would not add up: the result is the 10% quantile.
    """
    taken: dict[Name, list[float]] = {name: [] for name in calls}
    order, shuffle, until = list(calls), random.Random(0).shuffle, time.perf_counter() + seconds
    with torch.no_grad():
        for done in range(ROUNDS + WARM):
            if done >= FEWEST + WARM and time.perf_counter() > until:
                break
            shuffle(order)
            for name in order:
                taken[name].append((clock or timed_ms)(calls[name], device))
    return {name: float(numpy.quantile(all_ms[WARM:], QUANTILE)) for name, all_ms in taken.items()}


def ratio_of_rounds(baseline: Samples, other: Samples) -> tuple[float, tuple[float, float]]:
    """How many times faster `other` is: the median over rounds, and its 95% interval."""
    count = min(len(baseline.rounds_ms), len(other.rounds_ms))
    return median_interval(
        numpy.asarray(baseline.rounds_ms[:count]) / numpy.asarray(other.rounds_ms[:count])
    )


def median_interval(ratios: Floats) -> tuple[float, tuple[float, float]]:
    """The median of positive ratios in the order in which they were measured, and its 95% interval.

    A bootstrap assumes that rounds are independent. Where a busy machine makes neighbouring
    rounds alike (autocorrelation 0.7), its interval holds the true median 6 times in
    10. So its two sides are lengthened, on a logarithmic scale, for as many independent rounds as
    these are worth: by the root of the rounds over that number, and by Student's t for that number
    of rounds. The autocorrelation is that of the ranks, so that one outlier does not decide it, and
    since few rounds hardly show it, it is drawn towards 0.6 as if five more rounds had shown that.
    In simulations the interval then holds 0.91 of the time at an autocorrelation of 0.7 with 5
    rounds, 0.93 with 30 (0.85 with 7, the least), and 0.96 to 0.99 with independent rounds, where
    it is 1.2 times as wide as the plain one with 30 rounds and 2.6 times with 5. A single round has
    no width.
    """
    middle, count = float(numpy.median(ratios)), len(ratios)
    picks = numpy.random.default_rng(0).integers(0, count, (RESAMPLES, count))
    low, high = numpy.percentile(numpy.median(ratios[picks], axis=1), [2.5, 97.5])
    if low == high:
        return middle, (float(low), float(high))
    wider = _widening(ratios)
    return middle, (middle * float(low / middle) ** wider, middle * float(high / middle) ** wider)


def _widening(values: Floats) -> float:
    """The factor by which autocorrelation widens an interval on values in this order."""
    from scipy.special import stdtrit

    count = len(values)
    correlation = _autocorrelation(values)
    repeated = sum((1 - lag / count) * correlation**lag for lag in range(1, count))
    inflation = 1 + 2 * repeated
    degrees = max(count / inflation - 1, min(MIN_DEGREES, count - 1))
    return float(inflation**0.5 * stdtrit(degrees, 0.975) / NORMAL_975)


def _autocorrelation(values: Floats) -> float:
    """The rank autocorrelation of neighbouring values, from 0 to 0.9; see `median_interval`."""
    count, ordered = len(values), numpy.sort(values)
    ranks = numpy.searchsorted(ordered, values, "left") + numpy.searchsorted(
        ordered, values, "right"
    )
    off = ranks - ranks.mean()
    raw = float((off[1:] * off[:-1]).sum() / (off * off).sum())
    unbiased = raw + (1 + 4 * max(raw, 0.0)) / count  # a short series underestimates it
    drawn = (count * unbiased + PRIOR_ROUNDS * PRIOR_CORRELATION) / (count + PRIOR_ROUNDS)
    return min(max(drawn, 0.0), MAX_CORRELATION)


def peak_bytes(call: Callable[[], Any], device: torch.device) -> int:
    """The peak bytes of tensors that a call allocates, its output included.

    On CUDA this is the allocator's own figure; on a CPU the sum over every allocation that torch
    reports.
    """
    if device.type == "cuda":
        torch.cuda.synchronize(device)
        torch.cuda.reset_peak_memory_stats(device)
        before = torch.cuda.memory_allocated(device)
        call()
        torch.cuda.synchronize(device)
        return torch.cuda.max_memory_allocated(device) - before
    with torch.autograd.profiler.profile(profile_memory=True) as profiled:
        output = call()
    del output
    changes = [
        event.nbytes() for event in profiled.kineto_results.events() if event.name() == "[memory]"
    ]
    return int(max(numpy.cumsum([0, *changes])))


def flops(module: nn.Module, run: Callable[[nn.Module], Any]) -> int:
    """FLOPs of one call: convolutions, products, attention, fused layers; two a multiply-add."""
    with counter() as counted, torch.no_grad():
        run(module)
    return int(counted.get_total_flops())


def _calls_per_turn(candidate: Candidate) -> int:
    """Warm up a candidate and return the number of calls that fill a turn."""
    with candidate.around(), torch.no_grad(), threads(candidate.threads):
        _timed(candidate)
        fastest = _timed(candidate)[0]
        if fastest < TURN_S * 1e3:  # else one call fills a turn
            fastest = min(fastest, *(_timed(candidate)[0] for _ in range(2)))
    return max(1, min(MAX_CALLS_PER_TURN, round(TURN_S * 1e3 / max(fastest, 1e-3))))


def wait_until_quiet() -> None:
    """Wait until the last turn's threads sleep: spinning pools would slow the next one."""
    for _ in range(MAX_SLEEPS):
        before = time.process_time()
        time.sleep(SLEEP_S)
        if time.process_time() - before < SLEEP_S / 10:
            return


def _take_turn(candidate: Candidate, calls: int, samples: Samples) -> None:
    wait_until_quiet()
    with candidate.around(), torch.no_grad(), threads(candidate.threads):
        _timed(candidate)
        faults, slept = page_faults(), sleeps()
        taken = [_timed(candidate) for _ in range(calls)]
        if slept is not None:
            samples.sleeps.append(((sleeps() or 0) - slept) / calls)
        if faults is not None:
            samples.page_faults.append(((page_faults() or 0) - faults) / calls)
    samples.calls_ms += [wall for wall, _ in taken]
    samples.rounds_ms.append(float(numpy.median([wall for wall, _ in taken])))
    samples.cpu_ms.append(sum(cpu for _, cpu in taken) / calls)


def _timed(candidate: Candidate) -> tuple[float, float]:
    """Wall and process CPU time of one call, in ms."""
    synchronize(candidate.device)
    cpu = time.process_time_ns()
    wall_ms = timed_ms(candidate.call, candidate.device)
    return wall_ms, (time.process_time_ns() - cpu) / 1e6


def timed_ms(call: Callable[[], Any], device: torch.device) -> float:
    """Wall time of one call in ms, until its work on the device is done."""
    synchronize(device)
    began = time.perf_counter_ns()
    call()
    synchronize(device)
    return (time.perf_counter_ns() - began) / 1e6


def own_ms(call: Callable[[], Any], device: torch.device) -> float:
    """CPU time of one call in this thread in ms, without the time that other processes take."""
    began = time.thread_time_ns()
    call()
    return (time.thread_time_ns() - began) / 1e6


def clock_for(device: torch.device) -> Clock:
    """CPU time for one thread, which other processes do not change; else wall time."""
    return own_ms if device.type == "cpu" and torch.get_num_threads() == 1 else timed_ms


def synchronize(device: torch.device) -> None:
    """Wait until the device has done its work, before a clock is read."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


@contextmanager
def no_collection() -> Iterator[None]:
    """Without the collection of cycles, which would take time in between."""
    was_on = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_on:
            gc.enable()
