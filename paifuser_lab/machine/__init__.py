"""The machine: its hardware, its peak rates, and the number of threads.

machine      `lab.hardware()`: the description of this machine, measured once and kept
host         the system's facts: processor, cores, caches, memory, and torch's number of threads
ceilings     peak rates of computing and of memory, on the CPU and on CUDA devices
contention   warnings for rates measured while other processes used the cores
openmp       releases the OpenMP threads of the calling thread
turns        whose turn it is to run models: one thread at a time
cluster      joins a Ray cluster, or starts one on this machine
datasheets   published figures of devices that are not present
"""

from .machine import hardware, keep_faster, machine_label, thread_choices, threads

__all__ = [
    "hardware",
    "keep_faster",
    "machine_label",
    "thread_choices",
    "threads",
]
