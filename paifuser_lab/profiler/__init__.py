"""Where a model spends its time, memory and bytes, and why a layer is not faster.

    profile = profiler.profile(work)               # also lab.profile: a row a layer, as a tree
    profiler.explain(profile, "layer1.0.conv1")    # reasons, each with the step that would help
    profiler.side_by_side(work, variant)           # also lab.explain: both in turn, by layer
    profiler.batch_size(work, "2 GB")              # the smallest batch near the best throughput
    profiler.memory_timeline(work)                 # the memory of one call over time, by layer
    profiler.trace(work, "run.json.gz")            # a trace with layer names, and its summary
    profiler.read_trace("theirs.json.gz")          # the summary of a trace made elsewhere
    profiler.checklist(lambda: train(model, batches))  # your own loop: passed, failed, remedy

layers         profile a workload: `profile`, and several in turn
observation    everything measured of one workload, and its layers as a tree
clock          time each layer, and the cost of timing itself
operators      the ATen operators that each layer runs
cost           FLOPs and bytes of an operator
recording      torch's profiler on a device: kernels and gradients by layer
call_timeline  one call along time: its layers and operators
allocations    the memory timeline
alternatives   a layer timed alone in another layout or dtype
rows           from an observation to a profile: what binds each layer
engine_rows    the rows of a model in an engine, from the engine's own profile
advice         steps that would help; explain a layer, a container or a model
reasons        the reasons for a layer's time, one function each
expected       what a step is expected to leave of a model's latency
compared       two profiles: side by side, how a layer changed, where accuracy is lost
batches        latency, throughput and memory by batch size
batch_plan     which batches to measure, and which to choose
checks         the performance checklist
traces         traces of torch's profiler: written, read, summarised
"""

from .advice import explain
from .allocations import memory_timeline
from .batches import batch_size
from .checks import checklist
from .compared import explain as side_by_side
from .layers import profile, profile_in_turn
from .traces import read_trace, trace

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
