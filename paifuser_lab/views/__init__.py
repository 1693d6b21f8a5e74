"""Pictures of records: one module per kind of record, light and dark, for notebooks and papers.

Built on matplotlib.

picture          a picture as data: panels, axes, marks; the page draws it as well
canvas           a picture drawn by matplotlib
style            the themes, and `Drawing`, a figure that displays itself in a notebook or as SVG
heat_scale       the colour scale of heat maps, and a map as a panel
page             offline HTML pages: a profile's, a memory snapshot's
report           a variant as one page to send
profile          time by layer: a strip of all parts, the costliest layers
side_by_side     two profiles, layer by layer
hardware         a machine's ceilings
label_room       where names stand beside points
roofline         layers under a machine's ceilings
trace            the summary of a trace
call_timeline    one call along time: its layers and operators
memory           the memory timeline
memory_plan      buffers packed into one arena
memory_fit       the predicted peak against a memory limit; page faults with a memory pool
memory_snapshot  a memory snapshot: categories over time, segments at the peak
batch_sweep      latency, throughput and memory by batch size; dynamic batching
comparison       a baseline and its variants; the metric against latency and size
results          everything tried in a session
search           a search: loss against the goal, the best so far, which choices mattered
allocation       the Pareto frontier of formats
sensitivity      layers by format, predicted and measured
channels         latency by number of channels
importance       scores of channels under a threshold; how much of each layer is kept
generation       a language model and its variants: tokens a second, perplexity, texts
fusion_map       which layers run fused
graph            a model's operators and the tensors between them, blocks folded
graph_colours    what the nodes of a graph are coloured by: numbers as heat, words as groups
attention_cost   sparse attention: error, latency and metric by share kept
acceleration     the switches of an accelerated training loop, each with its speed-up
training_run     a training over its steps; the curve of a rate finder
parallel         the predicted step of each way to train on several processes; a pipeline
stream           a stream: its rate over time, latency by stage
"""

from __future__ import annotations

from functools import partial
from importlib import import_module

from ..records import Record
from . import canvas
from .picture import Picture
from .style import Drawing

__all__ = ["Drawing", "figure"]

DRAWERS = {
    "AccelerationStatus": ".acceleration:picture",
    "Allocation": ".allocation:picture",
    "AttentionCost": ".attention_cost:picture",
    "BatchingCurve": ".batch_sweep:picture_of_batching",
    "BatchSweep": ".batch_sweep:picture",
    "CallTimeline": ".call_timeline:picture",
    "Comparison": ".comparison:picture",
    "Fit": ".memory_fit:picture",
    "FusionMap": ".fusion_map:picture",
    "GenerationComparison": ".generation:picture",
    "Hardware": ".hardware:picture",
    "Importance": ".importance:picture",
    "MemoryPlan": ".memory_plan:picture",
    "MemorySnapshot": ".memory_snapshot:picture",
    "MemoryTimeline": ".memory:picture",
    "ModelGraph": ".graph:picture",
    "ParallelPlan": ".parallel:picture",
    "PipelineSchedule": ".parallel:picture_of_pipeline",
    "PoolCalls": ".memory_fit:picture_of_pool",
    "Profile": ".profile:picture",
    "RateCurve": ".training_run:picture_of_rates",
    "Results": ".results:picture",
    "Roofline": ".roofline:picture",
    "Sensitivity": ".sensitivity:picture",
    "SearchResult": ".search:picture",
    "SideBySide": ".side_by_side:picture",
    "Staircase": ".channels:picture",
    "StreamReport": ".stream:picture",
    "TraceSummary": ".trace:picture",
    "TradeOff": ".comparison:picture_of_trade_off",
    "TrainingRun": ".training_run:picture",
}


def picture_of(record: Record) -> Picture:
    """The picture of a record, as data."""
    name = type(record).__name__
    if name not in DRAWERS:
        raise TypeError(
            f"There is no drawing of a {name}; there are drawings of {', '.join(DRAWERS)}."
        )
    module, _, function = DRAWERS[name].partition(":")
    drawn: Picture = getattr(import_module(module, __name__), function)(record)
    return drawn


def figure(record: Record, *, dark: bool = False) -> Drawing:
    """The figure of a record; it displays itself in a notebook, `savefig` writes SVG or PNG."""
    draw = partial(canvas.draw, picture_of(record))
    drawing = draw(dark=dark)
    drawing.redraw = None if dark else draw
    return drawing
