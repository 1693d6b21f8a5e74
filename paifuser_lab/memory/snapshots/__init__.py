"""Torch's memory snapshots of CUDA's caching allocator, and runs recorded on this machine: read,
analysed, replayed.

`torch.cuda.memory._dump_snapshot` writes a pickle. Nothing in it is executed here: Python's
unpickler reads it with the opcodes of plain data alone, and those that import or call are refused.

reading      a file, its events and call stacks as columns, each value checked
snapshot     what a file holds: segments, blocks, events; the segments of a moment
live         one call or training step of a workload, recorded as a snapshot
stacks       call stacks, each once; the call site, the layer and the category of each
lifetimes    each block from its allocation to its release
analysis     a snapshot as a record; why memory ran out, and what would have fitted
settings     the allocator's settings, as torch documents them
allocator    a simulated caching allocator: split, coalesce, streams, pools
replay       the recorded requests under other settings
"""

from .analysis import memory_snapshot
from .reading import read_snapshot
from .replay import replay

__all__ = ["memory_snapshot", "read_snapshot", "replay"]
