"""Pictures of records: one module per kind of record, light and dark, for notebooks and papers.

Built on matplotlib.

picture          a picture as data: panels, axes, marks; the page draws it as well
canvas           a picture drawn by matplotlib
style            the themes, and `Drawing`, a figure that displays itself in a notebook or as SVG
sheet            a figure laid out in inches: columns of names, bars and numbers
heat_scale       the colour scale of heat maps
page             offline HTML pages: a profile's, a memory snapshot's
profile          time by layer, as an icicle; two profiles, layer by layer
roofline         a machine's ceilings, and layers under them
trace            the summary of a trace
memory           the memory timeline
memory_plan      buffers packed into one arena
memory_fit       the predicted peak against a memory limit; page faults with a memory pool
memory_snapshot  a memory snapshot: categories over time, segments at the peak
batch_sweep      latency, throughput and memory by batch size
batching         latency against throughput of dynamic batching
comparison       a baseline and its variants, everything tried, the metric against latency and size
allocation       the Pareto frontier of formats
sensitivity      layers by format, predicted and measured
channels         scores of channels; latency by number of channels
fusion_map       which layers run fused
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
from .style import Drawing

__all__ = ["Drawing", "figure"]

DRAWERS = {
    "AccelerationStatus": ".acceleration:draw",
    "Allocation": ".allocation:draw",
    "AttentionCost": ".attention_cost:draw",
    "BatchingCurve": ".batching:draw_curve",
    "BatchSweep": ".batch_sweep:picture",
    "Comparison": ".comparison:draw",
    "Fit": ".memory_fit:draw",
    "FusionMap": ".fusion_map:draw",
    "Hardware": ".roofline:draw_hardware",
    "Importance": ".channels:draw",
    "MemoryPlan": ".memory_plan:picture",
    "MemorySnapshot": ".memory_snapshot:picture",
    "MemoryTimeline": ".memory:draw",
    "ParallelPlan": ".parallel:draw",
    "PipelineSchedule": ".parallel:draw_pipeline",
    "PoolCalls": ".memory_fit:draw_pool",
    "Profile": ".profile:draw",
    "RateCurve": ".training_run:draw_rates",
    "Results": ".comparison:draw_results",
    "Roofline": ".roofline:draw",
    "Sensitivity": ".sensitivity:draw",
    "SideBySide": ".profile:draw_pair",
    "Staircase": ".channels:draw_staircase",
    "StreamReport": ".stream:draw",
    "TraceSummary": ".trace:draw",
    "TradeOff": ".comparison:draw_trade_off",
    "TrainingRun": ".training_run:draw",
}


def figure(record: Record, *, dark: bool = False) -> Drawing:
    """The figure of a record; it displays itself in a notebook, `savefig` writes SVG or PNG."""
    name = type(record).__name__
    if name not in DRAWERS:
        raise TypeError(
            f"There is no drawing of a {name}; there are drawings of {', '.join(DRAWERS)}."
        )
    module, _, function = DRAWERS[name].partition(":")
    made = partial(getattr(import_module(module, __name__), function), record)
    draw = partial(canvas.draw, made()) if function == "picture" else made
    drawing: Drawing = draw(dark=dark)
    drawing.redraw = None if dark else draw
    return drawing
