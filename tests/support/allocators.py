"""Stand-ins for allocators: the calls of the C library's, and torch.cuda's memory with pools."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from itertools import count
from types import SimpleNamespace
from typing import Any

from paifuser_lab.memory.pools.heap import M_MMAP_THRESHOLD, M_TRIM_THRESHOLD
from paifuser_lab.memory.pools.heap import Statistics as HeapStatistics

ROUNDED = 512
SEGMENT = 1 << 21  # a smaller request shares one


class FakeStatistics:
    """`mallinfo2` with figures that a test sets."""

    def __init__(self) -> None:
        self.restype: Any = None
        self.held = self.free = 0

    def __call__(self) -> HeapStatistics:
        return HeapStatistics(uordblks=self.held, fordblks=self.free)


class FakeLibrary:
    """A C library that remembers its settings; a trim empties nothing that lies between."""

    def __init__(self, *, has_statistics: bool = True, largest_mmap: int = 2**31) -> None:
        self.settings: dict[int, int] = {}
        self.trims = 0
        self.largest_mmap = largest_mmap
        self.between = 0  # free bytes that stay in the heap when it is trimmed
        if has_statistics:
            self.mallinfo2 = FakeStatistics()

    def mallopt(self, name: int, value: int) -> int:
        if name == M_MMAP_THRESHOLD and value > self.largest_mmap:
            return 0
        self.settings[name] = value
        return 1

    def malloc_trim(self, pad: int) -> int:
        self.trims += 1
        if hasattr(self, "mallinfo2"):
            self.mallinfo2.free = min(self.mallinfo2.free, self.between)
        return 1

    @property
    def thresholds(self) -> tuple[int | None, int | None]:
        return self.settings.get(M_MMAP_THRESHOLD), self.settings.get(M_TRIM_THRESHOLD)


class FakePool:
    """`torch.cuda.MemPool`."""

    def __init__(self, cuda: FakeCuda) -> None:
        self.cuda, self.id = cuda, (0, next(cuda.ids))

    def snapshot(self, *, include_traces: bool = True) -> list[dict[str, Any]]:
        assert not include_traces
        return [part for part in self.cuda.memory_snapshot() if part["segment_pool_id"] == self.id]


class FakeCuda:
    """`torch.cuda` with a caching allocator: blocks are rounded up, split, joined and kept; the
    pool that is in force in a thread serves it.
    """

    def __init__(self, total: int = 1 << 30) -> None:
        self.ids = count(1)
        self.segments: list[dict[str, Any]] = []
        self.total, self.share, self.emptied = total, 1.0, 0
        self.local = threading.local()
        self.addresses = count(1 << 20, 1 << 28)
        self.stream = SimpleNamespace(cuda_stream=7)
        self.fails_to_route = False

    def is_available(self) -> bool:
        return True

    def current_device(self) -> int:
        return 0

    def current_stream(self, device: int) -> Any:
        return self.stream

    def get_device_properties(self, device: int) -> Any:
        return SimpleNamespace(total_memory=self.total)

    def get_per_process_memory_fraction(self, device: int) -> float:
        return self.share

    def set_per_process_memory_fraction(self, share: float, device: int) -> None:
        self.share = share

    def memory_allocated(self, device: int) -> int:
        blocks = (block for segment in self.segments for block in segment["blocks"])
        return sum(block["size"] for block in blocks if block["state"] != "inactive")

    def MemPool(self) -> FakePool:
        return FakePool(self)

    @contextmanager
    def use_mem_pool(self, pool: FakePool, device: int) -> Iterator[None]:
        if self.fails_to_route:
            raise RuntimeError("no")
        before = self.routed
        self.local.pool = pool.id
        try:
            yield
        finally:
            self.local.pool = before

    @property
    def routed(self) -> tuple[int, int]:
        """The pool from which the current thread allocates."""
        return getattr(self.local, "pool", (0, 0))

    def empty_cache(self) -> None:
        self.emptied += 1
        self.segments = [
            segment
            for segment in self.segments
            if any(block["state"] != "inactive" for block in segment["blocks"])
        ]

    def memory_snapshot(self, *, include_traces: bool = True) -> list[dict[str, Any]]:
        return self.segments

    def caching_allocator_alloc(self, size: int, device: int = 0, stream: Any = None) -> int:
        rounded = max(ROUNDED, -(-size // ROUNDED) * ROUNDED)
        segment, index = self._fitting(rounded, device)
        block = segment["blocks"][index]
        rest = {**block, "size": block["size"] - rounded, "address": block["address"] + rounded}
        block |= {"size": rounded, "requested_size": size, "state": "active_allocated"}
        if rest["size"]:
            segment["blocks"].insert(index + 1, rest)
        return int(block["address"])

    def _fitting(self, size: int, device: int) -> tuple[dict[str, Any], int]:
        for segment in self.segments:
            if segment["segment_pool_id"] == self.routed and segment["device"] == device:
                for index, block in enumerate(segment["blocks"]):
                    if block["state"] == "inactive" and block["size"] >= size:
                        return segment, index
        whole = {"address": next(self.addresses), "size": max(size, SEGMENT), "state": "inactive"}
        segment = {"segment_pool_id": self.routed, "device": device, "blocks": [whole]}
        self.segments.append(segment)
        return segment, 0

    def caching_allocator_delete(self, address: int) -> None:
        for segment in self.segments:
            for block in segment["blocks"]:
                if block["address"] == address:
                    block["state"] = "inactive"
                    block.pop("requested_size")
            segment["blocks"] = _joined(segment["blocks"])


def _joined(blocks: list[dict[str, Any]]) -> list[dict[str, Any]]:
    joined: list[dict[str, Any]] = []
    for block in blocks:
        if joined and joined[-1]["state"] == block["state"] == "inactive":
            joined[-1]["size"] += block["size"]
        else:
            joined.append(block)
    return joined
