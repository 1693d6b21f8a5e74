"""Warnings for rates measured while other processes used the cores.

A rate is doubtful if its repetitions differ too much, its threads did not have a core each, other
processes used the cores meanwhile, or the speed-up of more threads over one is implausible.
"""

from __future__ import annotations

from typing import NamedTuple

from ..records import Ceiling, counted
from ..records.hardware import RATES
from .host import CoreUse, others_share

# Beyond these limits a rate gets a warning.
MIN_WALL_S = 0.03  # below it, the system's CPU time counter is too coarse
MAX_SPREAD = 1.25  # the median repetition over the fastest
MIN_CORES = 0.8  # CPU time over wall time, for each thread
MAX_OTHERS_SHARE = 0.15  # of the cores' time
MIN_GAIN, MAX_GAIN = 0.4, 1.3  # of a further thread; all-core clock rates cost at most half
MIN_COPY_RATIO = 0.9  # one thread alone may fill the memory's bandwidth
# torch computes some of these with one thread, whatever the setting
MAYBE_SERIAL = ("bf16_gflops", "fp16_gflops", "int8_gops")
SERIAL_TOLERANCE = 0.05


class Timing(NamedTuple):
    """Repetitions of a run, in seconds: fastest, median, sum, and the process's CPU time."""

    fastest_s: float
    middle_s: float
    wall_s: float
    cpu_s: float


def with_ratio_warnings(ceilings: tuple[Ceiling, ...]) -> tuple[Ceiling, ...]:
    """The ceilings (the first is that of one thread), with warnings where the speed-up of more
    threads is too low or too high.
    """
    single, *more = ceilings
    checked: list[Ceiling] = []
    warnings: list[str] = []
    for many in more:
        low, high = _ratio_warnings(single, many)
        checked.append(many.model_copy(update={"warnings": (*many.warnings, *low)}))
        warnings += high
    return single.model_copy(update={"warnings": (*single.warnings, *warnings)}), *checked


def _ratio_warnings(single: Ceiling, many: Ceiling) -> tuple[list[str], list[str]]:
    """Warnings on rates of many threads that are too low for one thread's, and the reverse."""
    times = many.threads / single.threads
    low, high = [], []
    for name in RATES:
        alone, together = getattr(single, name), getattr(many, name)
        if (
            not alone
            or not together
            or (name in MAYBE_SERIAL and abs(together / alone - 1) < SERIAL_TOLERANCE)
        ):
            continue
        ratio = together / alone
        least = MIN_COPY_RATIO if name == "bandwidth_gbs" else 1 + MIN_GAIN * (times - 1)
        if ratio < least:
            low.append(_ratio_text(name, many, single, ratio))
        elif ratio > MAX_GAIN * times:
            high.append(_ratio_text(name, many, single, ratio))
    return low, high


def _ratio_text(name: str, many: Ceiling, single: Ceiling, ratio: float) -> str:
    alone = counted(single.threads, "thread")
    return f"{_format(name)}: {many.threads} threads reach {ratio:.2f} times what {alone} reaches"


def _format(name: str) -> str:
    return name.partition("_")[0]


def timing_warnings(name: str, timing: Timing, count: int | None) -> list[str]:
    """Warnings from the timing of a rate; `count` threads should each have had a core (None on a
    device).
    """
    if timing.wall_s < MIN_WALL_S:
        return []
    warnings, spread = [], timing.middle_s / timing.fastest_s
    if spread > MAX_SPREAD:
        warnings.append(
            f"{_format(name)}: the middle repetition took {spread:.2f} times the fastest"
        )
    used = timing.cpu_s / timing.wall_s
    is_serial = name in MAYBE_SERIAL and abs(used - 1) < SERIAL_TOLERANCE
    if count is not None and used < MIN_CORES * count and not is_serial:
        warnings.append(f"{_format(name)}: {counted(count, 'thread')} had {used:.2f} cores")
    return warnings


def others_warnings(before: CoreUse, after: CoreUse) -> list[str]:
    share = others_share(before, after)
    is_long_enough = after.wall_s - before.wall_s >= MIN_WALL_S
    return (
        [f"other processes had {share:.0%} of the cores"]
        if is_long_enough and share > MAX_OTHERS_SHARE
        else []
    )
