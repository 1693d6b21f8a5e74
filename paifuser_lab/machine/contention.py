"""Warnings for rates that were measured while other processes used the cores.

A rate is doubtful where its repetitions differ too much, where its threads did not have their
cores, where other processes used the cores meanwhile, or where more threads are not as many times
faster as they should be.
"""

from __future__ import annotations

from typing import NamedTuple

from ..records import Ceiling, counted
from ..records.hardware import RATES
from .host import CoreUse, others_share

# Beyond these limits a rate was measured beside a neighbour, and is marked so.
ENOUGH_TO_JUDGE_S = 0.03  # in less, the ticks in which the system counts CPU time are all there is
MOST_SPREAD = 1.25  # the middle repetition over the fastest
LEAST_CORES = 0.8  # CPU time over wall time, for each thread
MOST_OTHERS = 0.15  # of the cores' time
LEAST_GAIN, MOST_GAIN = 0.4, 1.3  # of a further thread; all-core clock rates cost at most half
LEAST_COPY = 0.9  # one thread alone may fill the memory's bandwidth
IN_PART = (
    "bf16_gflops",
    "fp16_gflops",
    "int8_gops",
)  # torch computes some of them with one thread, whatever it is given
ONE_THREAD = 0.05


class Timing(NamedTuple):
    """Some repetitions of one run, in seconds: the fastest, the middle one, all together, and the
    process' CPU time.
    """

    fastest_s: float
    middle_s: float
    wall_s: float
    cpu_s: float


def with_ratio_warnings(ceilings: tuple[Ceiling, ...]) -> tuple[Ceiling, ...]:
    """The ceilings, the first of which is one thread's, with a warning where more threads give too
    little or too much.
    """
    one, *more = ceilings
    judged: list[Ceiling] = []
    on_one: list[str] = []
    for many in more:
        low, high = _ratio_warnings(one, many)
        judged.append(many.model_copy(update={"warnings": (*many.warnings, *low)}))
        on_one += high
    return one.model_copy(update={"warnings": (*one.warnings, *on_one)}), *judged


def _ratio_warnings(one: Ceiling, many: Ceiling) -> tuple[list[str], list[str]]:
    """What is wrong with the rates of more threads, too low beside one thread's, and with one
    thread's, too low beside them.
    """
    times = many.threads / one.threads
    low, high = [], []
    for name in RATES:
        alone, together = getattr(one, name), getattr(many, name)
        if (
            not alone
            or not together
            or (name in IN_PART and abs(together / alone - 1) < ONE_THREAD)
        ):
            continue
        ratio = together / alone
        least = LEAST_COPY if name == "bandwidth_gbs" else 1 + LEAST_GAIN * (times - 1)
        if ratio < least:
            low.append(_ratio_text(name, many, one, ratio))
        elif ratio > MOST_GAIN * times:
            high.append(_ratio_text(name, many, one, ratio))
    return low, high


def _ratio_text(name: str, many: Ceiling, one: Ceiling, ratio: float) -> str:
    alone = counted(one.threads, "thread")
    return f"{_format(name)}: {many.threads} threads reach {ratio:.2f} times what {alone} reaches"


def _format(name: str) -> str:
    return name.partition("_")[0]


def timing_warnings(name: str, timing: Timing, count: int | None) -> list[str]:
    """What the repetitions tell of a neighbour; `count` threads should have had a core each, None
    where no core computes.
    """
    if timing.wall_s < ENOUGH_TO_JUDGE_S:
        return []
    found, spread = [], timing.middle_s / timing.fastest_s
    if spread > MOST_SPREAD:
        found.append(f"{_format(name)}: the middle repetition took {spread:.2f} times the fastest")
    used = timing.cpu_s / timing.wall_s
    is_serial = name in IN_PART and abs(used - 1) < ONE_THREAD
    if count is not None and used < LEAST_CORES * count and not is_serial:
        found.append(f"{_format(name)}: {counted(count, 'thread')} had {used:.2f} cores")
    return found


def others_warnings(before: CoreUse, after: CoreUse) -> list[str]:
    share = others_share(before, after)
    is_long_enough = after.wall_s - before.wall_s >= ENOUGH_TO_JUDGE_S
    return (
        [f"other processes had {share:.0%} of the cores"]
        if is_long_enough and share > MOST_OTHERS
        else []
    )
