"""The allocator of the GNU C library (glibc): two thresholds, trimming, and statistics.

glibc serves a buffer from a mapping of its own if it is past the mmap threshold, and gives it back
when it is freed; it also gives back the top of its heap once that is past the trim threshold. The
next buffer is then faulted in again, page by page. Both thresholds begin at 128 kB and follow the
largest mapping freed so far, up to 32 and 64 MB; setting either ends that for the process, and
neither can be read. So `usual` are the values that the environment sets, or 32 and 64 MB, which
programs with large tensors reach by themselves; the adapting mode cannot be had back.
"""

from __future__ import annotations

import ctypes
import os
import sys
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

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
    """The thresholds that keep what is freed, up to a limit: a larger buffer is given back at once,
    and so is a larger top.
    """
    if limit_bytes is None:
        return Thresholds(LARGEST, NEVER)
    trim = limit_bytes if limit_bytes <= MAX_INT else NEVER
    return Thresholds(min(LARGEST, max(LEAST, limit_bytes)), trim)


class Glibc:
    """The calls of glibc's allocator."""

    def __init__(self, library: Any) -> None:
        self._library = library
        self._statistics = getattr(library, "mallinfo2", None)  # of 2.33 and later
        if self._statistics is not None:
            self._statistics.restype = Statistics

    def set(self, thresholds: Thresholds) -> None:
        """Set both thresholds."""
        mmap = min(thresholds.mmap_bytes, MAX_INT)
        if self._library.mallopt(M_MMAP_THRESHOLD, mmap):
            self._library.mallopt(M_MMAP_MAX, MOST_MMAPS)
        else:  # an old glibc takes 32 MB at most, and no mappings at all
            self._library.mallopt(M_MMAP_MAX, 0)
        self._library.mallopt(M_TRIM_THRESHOLD, min(thresholds.trim_bytes, MAX_INT))

    def trim(self) -> bool:
        """Give every free page back to the kernel; whether there was one."""
        return bool(self._library.malloc_trim(0))

    def statistics(self) -> Statistics | None:
        """What is allocated and what is free, in all arenas; None before glibc 2.33."""
        return self._statistics() if self._statistics is not None else None


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
