"""Timings of widths that can be compared with each other, whatever else runs or ran on the
machine.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import torch

from ...measure import Clock, own_ms, timed_ms

LARGE, COUNT, PIN = 4 << 20, 32, 1 << 10  # bytes, how many of them, bytes
# bytes: once a block of up to this size is freed, glibc keeps freed blocks of its size from then on
LARGEST_KEPT = (32 << 20) - (1 << 16)


def clock(device: torch.device, count: int) -> Clock:
    """The process's CPU time for one thread, which other processes do not change; else wall
    time.
    """
    return own_ms if device.type == "cpu" and count == 1 else timed_ms


@contextmanager
def memory_at_hand(device: torch.device) -> Iterator[None]:
    """Keep freed memory in the process inside the block.

    An allocator returns free memory at its end to the system and requests it again, call by call;
    whether it does depends on what happens to be there. This made the same convolution take 2.9 or
    11 ms.
    """
    if device.type != "cpu":
        yield
        return
    torch.empty(LARGEST_KEPT, dtype=torch.uint8)
    blocks = [torch.zeros(LARGE, dtype=torch.uint8) for _ in range(COUNT)]
    # behind the blocks, so that the memory before them stays in the process
    pins = [torch.zeros(PIN, dtype=torch.uint8) for _ in range(COUNT)]
    blocks.clear()
    yield
    pins.clear()
