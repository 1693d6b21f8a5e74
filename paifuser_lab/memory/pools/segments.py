"""Statistics of the caching allocator's segments on a CUDA device, for each of its pools.

A segment is what torch has taken from the driver; its blocks are given out or free. Blocks are
rounded up, and a request is served from one block, so that free memory in many small blocks serves
no large request.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

import torch

from ...records import MemoryPoolUse

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


def pools_of(
    device: int | None = None, names: Mapping[PoolId, str] | None = None, *, cuda: Any = torch.cuda
) -> tuple[MemoryPoolUse, ...]:
    """Every pool of the caching allocator on a device, torch's own first. Pools without a name of
    ours are private ones, as CUDA graphs have: torch's statistics count what they hold as free.
    """
    index = cuda.current_device() if device is None else device
    by_pool: dict[PoolId, list[Mapping[str, Any]]] = defaultdict(list)
    for segment in cuda.memory_snapshot(include_traces=False):
        if segment["device"] == index:
            first, second = segment.get("segment_pool_id", DEFAULT)
            by_pool[int(first), int(second)].append(segment)
    known = {DEFAULT: "torch", **(names or {})}
    return tuple(
        MemoryPoolUse(
            name=known.get(pool, f"private {pool[0]}.{pool[1]}"),
            device=f"cuda:{index}",
            **sums_of(by_pool[pool])._asdict(),
        )
        for pool in sorted(by_pool)
    )
