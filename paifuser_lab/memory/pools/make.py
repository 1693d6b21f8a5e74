"""`lab.memory_pool`: a pool on the device where the tensors are."""

from __future__ import annotations

import torch

from ...arguments import bytes_of
from ...errors import PoolError
from .device import DevicePool
from .heap import HeapPool
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
