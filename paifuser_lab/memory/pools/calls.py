"""The pool of a device, and the page faults that it may spare a model's calls, with their cost."""

from __future__ import annotations

import ctypes
import mmap
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from statistics import median

import torch

from ...arguments import bytes_of
from ...errors import PoolError, ShouldStop, stop_if_asked
from ...machine import hardware, threads
from ...measure import page_faults
from ...records import PoolCalls
from ...records.text import three_figures
from ...workload import Derived, Workload, running, workload_of
from .device import DevicePool
from .heap import HeapPool, heap_obstacle
from .pool import MemoryPool


def memory_pool(
    limit: int | str | None = None,
    *,
    device: str | torch.device = "cpu",
    name: str = "",
    hard: bool = False,
) -> MemoryPool:
    """A pool that keeps freed memory for the next request while it is in force:
    `with lab.memory_pool(limit="2 GB") as pool: …`, then `pool.statistics`.

    On a CPU it is the GNU C library's heap, which otherwise gives large buffers back to the kernel
    and faults them in again, page by page. `limit` bounds what is free and kept; past it, all of it
    is given back. Measure whether it helps: it does where buffers of tens of megabytes come and go.
    When it is left, glibc's thresholds are those of the environment, else 32 and 64 MB, at which
    its adaptation ends; adapting itself once a pool was used is what it no longer does.

    On "cuda" it is a named pool of torch's caching allocator, and `limit` bounds what it takes of
    the device: checked when it is left, or, with `hard=True`, as the process's share of the device,
    past which torch raises OutOfMemoryError.
    """
    limit_bytes = None if limit is None else bytes_of(limit)
    try:
        where = torch.device(device)
    except (RuntimeError, TypeError) as error:
        raise PoolError(
            f"There is no memory pool on device={device!r}; give 'cpu', 'cuda' or 'cuda:0'."
        ) from error
    if where.type == "cuda":
        return DevicePool(name, limit_bytes, device=where.index, is_hard=hard)
    if where.type != "cpu":
        raise PoolError(f"There is no memory pool on {where.type}; give device='cpu' or 'cuda'.")
    if hard:
        raise PoolError(
            "A hard limit needs CUDA; on a CPU the limit bounds what is kept. Leave hard=False."
        )
    return HeapPool(name, limit_bytes)


CALLS = 5
WARM_CALLS = 2  # after which the buffers of a call have their place
ADAPTING_CALLS = 3  # in which glibc adapts its thresholds


def pool_calls(
    subject: Workload | Derived,
    limit: int | str | None = None,
    *,
    calls: int = CALLS,
    should_stop: ShouldStop | None = None,
) -> PoolCalls:
    """Count the page faults of a call of a model or variant without a pool, then within one; a
    variant's own pool is in force on neither side.
    """
    work = workload_of(subject)
    pool = memory_pool(limit, device=work.device, name=work.name)
    inputs = work.inputs.clone()

    def call() -> None:
        stop_if_asked(should_stop)
        inputs(work.model)

    with running(work.model), threads(subject.own_threads):
        without = _counted(call, calls, WARM_CALLS)
        with pool.held():
            within = _counted(call, calls, WARM_CALLS)
            use = pool.statistics
    return PoolCalls(
        workload=work.name,
        machine=hardware().name,
        calls=calls,
        faults_without=None if without is None else without[0],
        faults_with=None if within is None else within[0],
        use=use,
    )


def _counted(call: Callable[[], object], calls: int, warm: int) -> tuple[float, float] | None:
    """The median page faults and ms of a call, after the first ones; None if uncounted."""
    for _ in range(warm):
        call()
    faults, times = [], []
    for _ in range(calls):
        before, began = page_faults(), time.perf_counter()
        call()
        ended, after = time.perf_counter(), page_faults()
        if before is None or after is None:
            return None
        faults.append(after - before)
        times.append(1e3 * (ended - began))
    return float(median(faults)), median(times)


REGION_BYTES = 32 << 20
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
            f"{three_figures(self.spared_ms)} of {three_figures(self.call_ms)} ms: at most "
            f"{self.speedup:.2f} ×"
        )


def pool_gain(work: Workload) -> PoolGain | None:
    """What a pool may spare a workload's call; None where no pool is or no faults are counted."""
    if work.device.type != "cpu" or heap_obstacle():
        return None
    inputs = work.inputs.clone()
    with running(work.model):
        counted = _counted(lambda: inputs(work.model), CALLS, ADAPTING_CALLS)
    return None if counted is None else PoolGain(counted[0], measured_fault_us(), counted[1])


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
