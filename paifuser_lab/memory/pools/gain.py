"""What a memory pool may spare a call on a CPU: its page faults, each at the cost measured here."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import median

from ...measure import page_faults
from ...workload import Workload, running
from .heap import heap_obstacle

REGION_BYTES = 32 << 20
WARM_CALLS, CALLS = 3, 5  # glibc adapts its thresholds in the first calls
LEAST_GAIN = 0.02  # of a call's time, below which no pool is offered


@dataclass(frozen=True)
class PoolGain:
    """The page faults of a call, the time of one, and the time of the call."""

    faults: float
    fault_us: float
    call_ms: float

    @property
    def spared_ms(self) -> float:
        """The time of all of them; no more than the call's."""
        return min(self.faults * self.fault_us / 1e3, 0.99 * self.call_ms)

    @property
    def speedup(self) -> float:
        """The speed-up if a pool spares them all."""
        return self.call_ms / (self.call_ms - self.spared_ms)

    @property
    def pays(self) -> bool:
        """Whether it is worth a try."""
        return self.spared_ms >= LEAST_GAIN * self.call_ms

    @property
    def sentence(self) -> str:
        """The estimate and where it comes from."""
        return (
            f"{self.faults:,.0f} page faults a call at {self.fault_us:.2f} µs each are "
            f"{self.spared_ms:.3g} of {self.call_ms:.3g} ms: at most {self.speedup:.2f} ×"
        )


def pool_gain(
    work: Workload,
    *,
    count: Callable[[], int | None] = page_faults,
    clock: Callable[[], float] = time.perf_counter,
    fault_us: Callable[[], float] | None = None,
) -> PoolGain | None:
    """What a pool may spare a workload's call; None where no pool is or no faults are counted."""
    if work.device.type != "cpu" or heap_obstacle() or count() is None:
        return None
    inputs = work.inputs.clone()
    faults, times = [], []
    with running(work.model):
        for call in range(WARM_CALLS + CALLS):
            before, began = count() or 0, clock()
            inputs(work.model)
            ended, after = clock(), count() or 0
            if call >= WARM_CALLS:
                times.append(1e3 * (ended - began))
                faults.append(after - before)
    cost = (fault_us or measured_fault_us)()
    return PoolGain(median(faults), cost, median(times))


@cache
def measured_fault_us() -> float:
    """The time of a page fault on this machine: fresh pages are written to, and then again."""
    costs = []
    for _ in range(3):
        with mmap.mmap(-1, REGION_BYTES) as region:
            address = ctypes.addressof(ctypes.c_char.from_buffer(region))
            costs.append(_filled(address) - _filled(address))
    return max(0.0, 1e6 * min(costs) / (REGION_BYTES / mmap.PAGESIZE))


def _filled(address: int) -> float:
    """The seconds to write to every page."""
    began = time.perf_counter()
    ctypes.memset(address, 1, REGION_BYTES)
    return time.perf_counter() - began
