"""`paifuser-lab bench kernels`: CUDA kernels against float64, then against what torch has, then
against the machine.

running    the whole: probes, numbers, times, within a number of seconds cases      each kernel at
real shapes, and at small ones for a CPU peers      what else computes the same: SDPA by each of its
backends, compiled torch, FlexAttention, cuDNN sparse     its peers of attention to chosen blocks
whole      whole numbers of eight bits: inputs, and peers densities  what choosing blocks costs in
exactness timing     graph replays in turn, over inputs that the cache cannot hold checking   how
far an answer is from float64, in parts of what is allowed probing    whether the words of
common.cuh mean what PTX says, and whether machine code loads checkout   the emulator and the
probes, which are in a checkout alone record     what was found, as a table and in words
"""

from .record import KernelBench
from .running import bench

__all__ = ["KernelBench", "bench"]
