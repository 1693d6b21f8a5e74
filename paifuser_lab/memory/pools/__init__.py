"""Memory pools: what is freed is kept for the next request, with a limit, trimming and statistics.

pool    `MemoryPool`: entered once at a time; or in force during calls, from any thread
heap    the pool on a CPU: the GNU C library's heap keeps what is freed
device  the pool on CUDA: a named pool of torch's caching allocator; its segments; CuPy in it
calls   `memory_pool`, the pool of a device; the page faults that it spares a model's calls
"""

from .calls import PoolGain, memory_pool, pool_calls, pool_gain
from .device import DevicePool, cupy_in_torch_memory, pools_of
from .heap import HeapPool, heap_obstacle
from .pool import MemoryPool

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
