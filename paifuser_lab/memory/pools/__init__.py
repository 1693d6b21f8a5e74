"""Memory pools: what is freed is kept for the next request, with a limit, trimming and statistics.

make          `memory_pool`: the pool of a device
pool          `MemoryPool`: entered once at a time; or in force during calls, from any thread
heap          the pool on a CPU: the GNU C library's heap keeps what is freed
gain          the page faults that a pool may spare a call, and what they cost here
glibc         the settings and statistics of the GNU C library's allocator
device        the pool on CUDA: a named pool of torch's caching allocator
calls         page faults of a model's calls with a pool and without it
segments      statistics of the caching allocator's segments, and the pools on a device
cupy_memory   CuPy's arrays in the memory of torch's caching allocator
"""

from __future__ import annotations

from .calls import pool_calls
from .cupy_memory import cupy_in_torch_memory
from .device import DevicePool
from .gain import PoolGain, pool_gain
from .heap import HeapPool, heap_obstacle
from .make import memory_pool
from .pool import MemoryPool
from .segments import pools_of

__all__ = [
    "DevicePool",
    "HeapPool",
    "MemoryPool",
    "PoolGain",
    "cupy_in_torch_memory",
    "heap_obstacle",
    "memory_pool",
    "pool_calls",
    "pool_gain",
    "pools_of",
]
