"""The pool on a CPU: the GNU C library's heap keeps what is freed, for the whole process.

glibc serves a buffer past the mmap threshold from a mapping of its own, which it gives back when it
is freed, and gives back the top of its heap past the trim threshold; the next buffer is faulted in
again, page by page. Both thresholds begin at 128 kB and follow the largest mapping freed so far, up
to 32 and 64 MB; setting either ends that for the process, and neither can be read. So `usual` are
those of the environment, or 32 and 64 MB. docs/memory.md says what a pool cannot do: heaps of other
threads stay at 64 MB, and a hole below something that is alive outlasts the pool.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from threading import RLock
from typing import Any

from ...errors import PoolError
from ...measure import page_faults, resident_bytes
from ...records import MemoryPoolUse
from .pool import MemoryPool

M_TRIM_THRESHOLD, M_MMAP_THRESHOLD, M_MMAP_MAX = -1, -3, -4
MOST_MMAPS = 65536  # glibc's default of M_MMAP_MAX
LEAST = 128 << 10  # glibc's first mmap and trim threshold
ADAPTED = (32 << 20, 64 << 20)  # what both reach when glibc adapts them
LARGEST = 1 << 30  # buffers past it are mapped one by one in a pool, too
NEVER = -1  # a trim threshold that is never passed
MAX_INT = 2**31 - 1
OTHERS = {"mallctl": "jemalloc", "tc_version": "tcmalloc"}  # a symbol → the allocator that has it


@dataclass(frozen=True)
class Thresholds:
    """Buffers past `mmap_bytes` get a mapping each; a free top past `trim_bytes` is given back."""

    mmap_bytes: int
    trim_bytes: int


class Statistics(ctypes.Structure):
    """glibc's `struct mallinfo2`."""

    _fields_ = [
        (name, ctypes.c_size_t)
        for name in (
            "arena",
            "ordblks",
            "smblks",
            "hblks",
            "hblkhd",
            "usmblks",
            "fsmblks",
            "uordblks",
            "fordblks",
            "keepcost",
        )
    ]


def usual(environment: Mapping[str, str] | None = None) -> Thresholds:
    """The thresholds without a pool: those of the environment, else what glibc adapts them to."""
    environment = os.environ if environment is None else environment
    named = {
        "mmap_threshold": environment.get("MALLOC_MMAP_THRESHOLD_"),
        "trim_threshold": environment.get("MALLOC_TRIM_THRESHOLD_"),
    }
    for tunable in environment.get("GLIBC_TUNABLES", "").split(":"):
        name, _, value = tunable.partition("=")
        if (short := name.removeprefix("glibc.malloc.")) in named and short != name:
            named[short] = value
    values = {name: number for name, text in named.items() if (number := _number(text)) is not None}
    mmap, trim = (LEAST, LEAST) if values else ADAPTED  # one that is set ends the adapting of both
    return Thresholds(values.get("mmap_threshold", mmap), values.get("trim_threshold", trim))


def keeping(limit_bytes: int | None) -> Thresholds:
    """The thresholds that keep what is freed up to a limit and give back more than that at once."""
    if limit_bytes is None:
        return Thresholds(LARGEST, NEVER)
    trim = limit_bytes if limit_bytes <= MAX_INT else NEVER
    return Thresholds(min(LARGEST, max(LEAST, limit_bytes)), trim)


def obstacle(library: Any, platform: str = sys.platform) -> str:
    """Why this process's allocator cannot be told to keep what is freed; empty if it can."""
    if platform == "win32":
        return "Windows' allocator has no setting that keeps freed memory"
    if platform != "linux":
        return f"the allocator of this system ({platform}) has no setting that keeps freed memory"
    if not hasattr(library, "gnu_get_libc_version") or not hasattr(library, "mallopt"):
        return "the C library is not GNU's (on Alpine Linux it is musl), whose allocator has none"
    for symbol, name in OTHERS.items():
        if hasattr(library, symbol):
            return f"{name} replaces the C library's allocator, and keeps freed memory by itself"
    return ""


def load_library() -> Any:
    """The C library of this process; None where it cannot be opened by itself."""
    return None if sys.platform == "win32" else ctypes.CDLL(None)


def _number(text: str | None) -> int | None:
    """An integer as glibc reads it from its environment; None if it is not one."""
    try:
        return int(text, 0) if text else None
    except ValueError:
        return None


class Heap:
    """The process's heap in the GNU C library, and the pools that are in force in it."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._mallinfo = getattr(library, "mallinfo2", None)  # of 2.33 and later
        if self._mallinfo is not None:
            self._mallinfo.restype = Statistics
        self._usual = usual()
        self._lock = RLock()
        self._uses: Counter[HeapPool] = Counter()
        self._emptied_bytes = 0  # free bytes whose pages a trim has given back

    def enter(self, pool: HeapPool) -> None:
        """Let a pool be in force once more."""
        with self._lock:
            self._uses[pool] += 1
            if self._uses[pool] == 1:
                self._set(keeping(self._limit))

    def leave(self, pool: HeapPool, *, trim: bool) -> None:
        """Let a pool be in force once less."""
        with self._lock:
            self._uses[pool] -= 1
            if self._uses[pool] > 0:
                return
            del self._uses[pool]
            self._set(keeping(self._limit) if self._uses else self._usual)
            if trim and not self._uses:
                self.trim()

    def trim(self) -> None:
        """Give what is kept back to the kernel."""
        with self._lock:
            self._library.malloc_trim(0)
            now = self._statistics()
            self._emptied_bytes = 0 if now is None else now.fordblks

    def trim_past(self, limit_bytes: int | None) -> bool:
        """Trim if more than a limit is kept; whether it was."""
        if limit_bytes is None:
            return False
        with self._lock:
            kept = self.kept_bytes()
            if kept is None or kept <= limit_bytes:
                return False
            self.trim()
            return True

    def kept_bytes(self) -> int | None:
        """What is free and has pages; None before glibc 2.33. Holes that a trim has emptied are not
        counted, also where they are in use again, so that it can be too small by these.
        """
        with self._lock:
            now = self._statistics()
            if now is None:
                return None
            self._emptied_bytes = min(self._emptied_bytes, now.fordblks)
            return int(now.fordblks - self._emptied_bytes)

    def held_bytes(self) -> int | None:
        """What is allocated and not freed; None before glibc 2.33."""
        now = self._statistics()
        return None if now is None else int(now.uordblks + now.hblkhd)

    @property
    def _limit(self) -> int | None:
        limits = [pool.limit_bytes for pool in self._uses if pool.limit_bytes is not None]
        return min(limits, default=None)

    def _set(self, thresholds: Thresholds) -> None:
        mmap = min(thresholds.mmap_bytes, MAX_INT)
        if self._library.mallopt(M_MMAP_THRESHOLD, mmap):
            self._library.mallopt(M_MMAP_MAX, MOST_MMAPS)
        else:  # an old glibc takes 32 MB at most, and no mappings at all
            self._library.mallopt(M_MMAP_MAX, 0)
        self._library.mallopt(M_TRIM_THRESHOLD, min(thresholds.trim_bytes, MAX_INT))

    def _statistics(self) -> Statistics | None:
        """What is allocated and what is free, in all arenas; None before glibc 2.33."""
        return self._mallinfo() if self._mallinfo is not None else None


@cache
def heap_obstacle() -> str:
    """Why there is no pool on this machine's CPU; empty if there is one."""
    return obstacle(load_library())


@cache
def process_heap() -> Heap:
    return Heap(load_library())


class HeapPool(MemoryPool):
    """Freed memory of the CPU is kept up to a limit; see `MemoryPool`."""

    def __init__(
        self, name: str = "", limit_bytes: int | None = None, *, heap: Heap | None = None
    ) -> None:
        super().__init__(name, limit_bytes)
        if heap is None and (reason := heap_obstacle()):
            raise PoolError(
                f"A memory pool on a CPU needs the GNU C library's allocator, and {reason}; leave "
                "the pool out here."
            )
        self._heap = process_heap() if heap is None else heap
        self._faults = 0  # while it was in force, as far as it was left
        self._faults_before: list[int] = []

    @property
    def statistics(self) -> MemoryPoolUse:
        """What is allocated and kept now, and the page faults while the pool was in force."""
        self._check()
        running = self._faults_before[:1]
        return MemoryPoolUse(
            name=self.name,
            device="cpu",
            limit_bytes=self.limit_bytes,
            is_in_force=bool(running),
            held_bytes=self._heap.held_bytes(),
            kept_bytes=self._heap.kept_bytes(),
            resident_bytes=resident_bytes(),
            page_faults=self._faults + sum((page_faults() or 0) - before for before in running),
            trims=self.trims,
        )

    def trim(self) -> None:
        """Give every free page back to the kernel, also those that were free before the pool."""
        self.trims += 1
        self._heap.trim()

    def _begin(self) -> None:
        with self._lock:
            self._faults_before.append(page_faults() or 0)
            self._heap.enter(self)

    def _end(self, *, trim: bool) -> None:
        with self._lock:
            self._heap.leave(self, trim=trim)
            before = self._faults_before.pop()
            if not self._faults_before:
                self._faults += (page_faults() or 0) - before
        self._check()

    def _check(self) -> None:
        """Trim if more than the limit is kept."""
        if self._heap.trim_past(self.limit_bytes):
            self.trims += 1
