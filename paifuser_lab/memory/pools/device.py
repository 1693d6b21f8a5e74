"""The pool on CUDA: a named pool (`torch.cuda.MemPool`) of torch's caching allocator.

torch's allocator stays the only one. While the pool is in force, what the current thread allocates
comes from segments of its own, so that its peak, its fragmentation and its free memory are its own,
too; threads that run backward allocate from torch's. A soft limit is checked when the pool is left
and when its statistics are read; a hard one is the process's share of the device, past which torch
raises OutOfMemoryError.
"""

from __future__ import annotations

from contextlib import ExitStack
from functools import cache
from threading import Lock, local
from typing import Any

import torch

from ...errors import PoolError
from ...records import MemoryPoolUse, readable_bytes
from .pool import MemoryPool
from .segments import BlockSums, sums_of


class HardLimits:
    """The hard limits in force on a device: the smallest holds, and the share of before is set
    again when the last is left.
    """

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
def _hard_limits(device: int) -> HardLimits:
    return HardLimits(torch.cuda, device)


class _Thread(local):
    """How often the pool is in force in this thread, and what undoes it."""

    def __init__(self) -> None:
        self.depth = 0
        self.context: ExitStack | None = None


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
        hard_limits: HardLimits | None = None,
    ) -> None:
        super().__init__(name, limit_bytes)
        if not cuda.is_available():
            raise PoolError(
                "A memory pool on CUDA needs a GPU that torch can use, and there is none; "
                "lab.memory_pool() is the CPU's."
            )
        if is_hard and limit_bytes is None:
            raise PoolError("A hard limit needs a size; give limit='8 GB', or leave hard=False.")
        self._cuda, self.is_hard = cuda, is_hard
        self._device: int = cuda.current_device() if device is None else device
        self._limits = hard_limits or _hard_limits(self._device)
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
