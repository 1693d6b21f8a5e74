"""`paifuser-lab bench kernels`: CUDA kernels against float64, torch, and the machine's ceilings.

running      the whole benchmark within a number of seconds: probes, checks, times
cases        each kernel at real shapes, and at small ones for a CPU
int8_cases   the cases of int8 kernels
peers        other implementations: SDPA's backends, compiled torch, FlexAttention, cuDNN
sparse       peers of attention to chosen blocks
timing       graph replays in turn, over inputs larger than the cache
checking     the error of an output against float64, relative to the allowed error
preflight    whether the functions of common.cuh work on this device
checkout     the emulator and the probes, which only a checkout has
tuning       the search for a kernel's best tiles
contest      the tiles of one search, timed in turn
record       the results, as a table and as text
"""

from .record import KernelBench
from .running import bench

__all__ = ["KernelBench", "bench"]
