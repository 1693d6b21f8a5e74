"""The pool on CUDA: a named pool (`torch.cuda.MemPool`) of torch's caching allocator.

torch's allocator stays the only one. While the pool is in force, what the current thread allocates
comes from segments of its own, so that its peak, its fragmentation and its free memory are its own,
too; threads that run backward allocate from torch's. A soft limit is checked when the pool is left
and when its statistics are read; a hard one is the process's share of the device, past which torch
raises OutOfMemoryError.

A segment is what torch has taken from the driver; its blocks are given out or free. Blocks are
rounded up, and a request is served from one block, so that free memory in many small blocks serves
no large request. CuPy can allocate here too: with an allocator of its own it would keep what torch
could use.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import cache
from threading import Lock, local
from typing import Any, NamedTuple

import torch

from ...errors import PoolError, optional_module
from ...records import MemoryPoolUse, readable_bytes
from .pool import MemoryPool

PoolId = tuple[int, int]
DEFAULT: PoolId = (0, 0)
FREE = "inactive"


class BlockSums(NamedTuple):
    """Bytes of blocks given out, of what was requested of them, of free ones and of the largest."""

    held_bytes: int
    requested_bytes: int
    kept_bytes: int
    largest_free_bytes: int


def sums_of(segments: Iterable[Mapping[str, Any]]) -> BlockSums:
    """The sums over the blocks of segments; a freed block that a stream still uses is given out."""
    blocks = [block for segment in segments for block in segment["blocks"]]
    held = [block for block in blocks if block["state"] != FREE]
    free = [int(block["size"]) for block in blocks if block["state"] == FREE]
    return BlockSums(
        sum(int(block["size"]) for block in held),
        sum(int(block.get("requested_size", block["size"])) for block in held),
        sum(free),
        max(free, default=0),
    )


def _check_gpu(cuda: Any, what: str) -> None:
    """Raise where torch can use no GPU."""
    if not cuda.is_available():
        raise PoolError(
            f"{what} needs a GPU that torch can use, and there is none; lab.memory_pool() is the "
            "CPU's."
        )


def pools_of(device: int | None = None, *, cuda: Any = torch.cuda) -> tuple[MemoryPoolUse, ...]:
    """Every pool of the caching allocator on a device, torch's own first. The others are private
    ones, as CUDA graphs have: torch's statistics count what they hold as free.
    """
    _check_gpu(cuda, "A memory pool on CUDA")
    index = cuda.current_device() if device is None else device
    by_pool: dict[PoolId, list[Mapping[str, Any]]] = defaultdict(list)
    for segment in cuda.memory_snapshot(include_traces=False):
        if segment["device"] == index:
            first, second = segment.get("segment_pool_id", DEFAULT)
            by_pool[int(first), int(second)].append(segment)
    return tuple(
        MemoryPoolUse(
            name="torch" if pool == DEFAULT else f"private {pool[0]}.{pool[1]}",
            device=f"cuda:{index}",
            **sums_of(by_pool[pool])._asdict(),
        )
        for pool in sorted(by_pool)
    )


class HardLimits:
    """The hard limits in force on a device: the smallest holds, and the last restores the share."""

    def __init__(self, cuda: Any, device: int) -> None:
        self._cuda, self._device = cuda, device
        self._lock = Lock()
        self._limits: list[int] = []
        self._share_before = 1.0

    def enter(self, limit_bytes: int) -> None:
        """Hold the process to a limit; raises if its tensors have more already."""
        held = self._cuda.memory_allocated(self._device)
        if limit_bytes < held:
            raise PoolError(
                f"A hard limit of {readable_bytes(limit_bytes)} is less than the "
                f"{readable_bytes(held)} that tensors have on cuda:{self._device} already; give at "
                f"least {held} bytes, and what the calls need on top."
            )
        with self._lock:
            if not self._limits:
                self._share_before = self._cuda.get_per_process_memory_fraction(self._device)
            self._limits.append(limit_bytes)
            self._set()

    def leave(self, limit_bytes: int) -> None:
        """Undo one `enter`."""
        with self._lock:
            self._limits.remove(limit_bytes)
            self._set()

    def _set(self) -> None:
        whole = self._cuda.get_device_properties(self._device).total_memory
        share = min(self._limits) / whole if self._limits else self._share_before
        self._cuda.set_per_process_memory_fraction(
            min(share, self._share_before), device=self._device
        )


@cache
def _hard_limits(cuda: Any, device: int) -> HardLimits:
    return HardLimits(cuda, device)


class _Thread(local):
    """How often the pool is in force in this thread, and what undoes it."""

    depth = 0
    context: ExitStack | None = None


class DevicePool(MemoryPool):
    """A named pool of torch's caching allocator on a CUDA device; see `MemoryPool`."""

    def __init__(
        self,
        name: str = "",
        limit_bytes: int | None = None,
        *,
        device: int | None = None,
        is_hard: bool = False,
        cuda: Any = torch.cuda,
    ) -> None:
        super().__init__(name, limit_bytes)
        _check_gpu(cuda, "A memory pool on CUDA")
        if is_hard and limit_bytes is None:
            raise PoolError("A hard limit needs a size; give limit='8 GB', or leave hard=False.")
        self._cuda, self.is_hard = cuda, is_hard
        self._device: int = cuda.current_device() if device is None else device
        self._limits = _hard_limits(cuda, self._device)
        self._pool: Any = None
        self._uses = 0
        self._thread = _Thread()

    @property
    def statistics(self) -> MemoryPoolUse:
        """What the pool's segments hold and keep now."""
        self._check()
        return MemoryPoolUse(
            name=self.name,
            device=f"cuda:{self._device}",
            limit_bytes=self.limit_bytes,
            is_hard=self.is_hard,
            is_in_force=self._uses > 0,
            trims=self.trims,
            **self._sums()._asdict(),
        )

    def trim(self) -> None:
        """Give unused segments back to the driver. torch releases those of a named pool only with
        the pool, so this one is replaced where nothing is alive in it and it is not in force.
        """
        self.trims += 1
        with self._lock:
            if self._uses == 0 and self._sums().held_bytes == 0:
                self._pool = None
        self._cuda.empty_cache()

    def _begin(self) -> None:
        if self._thread.depth == 0:
            self._thread.context = self._entered()
        self._thread.depth += 1

    def _entered(self) -> ExitStack:
        """In force in this thread: what ends that."""
        with ExitStack() as stack:
            if self.is_hard and self.limit_bytes is not None:
                self._limits.enter(self.limit_bytes)
                stack.callback(self._limits.leave, self.limit_bytes)
            with self._lock:
                self._pool = self._pool or self._cuda.MemPool()
                self._uses += 1
            stack.callback(self._used)
            stack.enter_context(self._cuda.use_mem_pool(self._pool, self._device))
            return stack.pop_all()

    def _used(self) -> None:
        with self._lock:
            self._uses -= 1

    def _end(self, *, trim: bool) -> None:
        thread = self._thread
        if thread.context is None:
            raise PoolError(
                f"{self.label} was entered in another thread; a pool on CUDA is left in the thread "
                "that entered it."
            )
        thread.depth -= 1
        if thread.depth == 0:
            context, thread.context = thread.context, None
            context.close()
            self._check()

    def _check(self) -> None:
        """Trim if the pool has more of the device than its limit."""
        if self.limit_bytes is None:
            return
        sums = self._sums()
        if sums.kept_bytes and sums.held_bytes + sums.kept_bytes > self.limit_bytes:
            self.trim()

    def _sums(self) -> BlockSums:
        """The sums over the pool's blocks on its device."""
        segments = [] if self._pool is None else self._pool.snapshot(include_traces=False)
        return sums_of(segment for segment in segments if segment["device"] == self._device)


@contextmanager
def cupy_in_torch_memory(
    device: int | None = None, *, cupy: Any = None, cuda: Any = torch.cuda
) -> Iterator[None]:
    """Let CuPy allocate from torch's allocator and run on torch's current stream; arrays that live
    on afterwards stay valid, and are freed to torch.
    """
    _check_gpu(cuda, "CuPy in torch's memory")
    cupy = cupy or optional_module("cupy", extra="gpu", needed_for="CuPy in torch's memory")
    index = cuda.current_device() if device is None else device

    def allocate(size: int, on: int) -> int:
        stream = cuda.current_stream(on)
        if cupy.cuda.get_current_stream().ptr != stream.cuda_stream:
            raise PoolError(
                f"CuPy's current stream on cuda:{on} is another than torch's, from whose memory "
                "it would allocate; use both on one: "
                "cupy.cuda.Stream.from_external(torch.cuda.current_stream())."
            )
        return int(cuda.caching_allocator_alloc(size, on, stream))

    def free(address: int, on: int) -> None:
        cuda.caching_allocator_delete(address)

    before = cupy.cuda.get_allocator()
    cupy.cuda.set_allocator(cupy.cuda.PythonFunctionAllocator(allocate, free).malloc)
    try:
        stream = cupy.cuda.Stream.from_external(cuda.current_stream(index))
        with cupy.cuda.Device(index), stream:
            yield
    finally:
        cupy.cuda.set_allocator(before)
