"""Timings of widths that can be compared with each other, whatever else runs on the machine and
whatever ran before.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...measure import Clock, own_ms, timed_ms

LARGE, COUNT, PIN = 4 << 20, 32, 1 << 10  # bytes, how many of them, bytes
LARGEST_KEPT = (32 << 20) - (
    1 << 16
)  # bytes: when a block up to this size is freed, glibc keeps those of its size from then on


def clock(device: torch.device, count: int) -> Clock:
    """With one thread its CPU time, which no neighbour changes; else the time that passes."""
    return own_ms if device.type == "cpu" and count == 1 else timed_ms


@contextmanager
def memory_at_hand(device: torch.device) -> Iterator[None]:
    """Have the process hold memory that is free inside the block.

    An allocator gives what lies at its end back to the system and asks for it again, call by call;
    whether it does depends on what happens to lie there. It made the same convolution take 2.9 or
    11 ms.
    """
    if device.type != "cpu":
        yield
        return
    torch.empty(LARGEST_KEPT, dtype=torch.uint8)
    blocks = [torch.zeros(LARGE, dtype=torch.uint8) for _ in range(COUNT)]
    pins = [
        torch.zeros(PIN, dtype=torch.uint8) for _ in range(COUNT)
    ]  # beyond the blocks: what lies before them is kept
    blocks.clear()
    yield
    pins.clear()
