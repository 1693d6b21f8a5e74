"""`paifuser-lab bench kernels`: CUDA kernels against float64, torch, and the machine's ceilings.

running     the whole benchmark within a number of seconds: probes, checks, times
cases       each kernel at real and small shapes, its exact output and the allowed error
peers       other implementations: SDPA's backends, compiled torch, FlexAttention, cuDNN
timing      graph replays in turn, over inputs larger than the cache
preflight   whether the functions of common.cuh work on this device; the emulator
tuning      the search for a kernel's best tiles
record      the results, as a table and as text
"""

from .record import KernelBench
from .running import bench

__all__ = ["KernelBench", "bench"]
