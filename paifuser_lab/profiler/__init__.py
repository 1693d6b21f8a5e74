"""Where a model spends its time, memory and bytes, and why a layer is not faster.

profile = profiler.profile(work)                 # also lab.profile: a row a layer, a tree above it
profiler.explain(profile, "layer1.0.conv1")      # sentences from facts, each with the step that
would help profiler.side_by_side(work, variant)             # both, their runs in turn, matched by
path profiler.batch_size(work, "2 GB")                # the smallest batch that reaches 85% of the
best throughput, within memory profiler.memory_timeline(work)                   # what one call has
alive at each moment, and which layer took it profiler.trace(work, "run.json.gz")              # a
trace for Perfetto or TensorBoard, each layer named, and its summary
profiler.read_trace("theirs.json.gz")            # the summary of a trace made elsewhere, also on a
GPU profiler.checklist(lambda: train(model, batches)) # your own loop, or a workload: what passed,
what failed and the remedy
"""

from __future__ import annotations

from .allocations import memory_timeline
from .batches import batch_size
from .checks import checklist
from .layers import profile, profile_in_turn
from .pairs import side_by_side
from .traces import read_trace, trace
from .why import explain

__all__ = [
    "batch_size",
    "checklist",
    "explain",
    "memory_timeline",
    "profile",
    "profile_in_turn",
    "read_trace",
    "side_by_side",
    "trace",
]
