"""Figures of records: one module per kind of record, light and dark, for notebooks and papers.

Built on matplotlib.

style            the themes, and `Drawing`, a figure that displays itself in a notebook
sheet            a figure laid out in inches: columns of names, bars and numbers
bar_rows         rows of horizontal bars, each with its name and its figure
labels           positions of labels that do not overlap dots, lines or each other
svg              a figure as SVG, with tooltips and colours that follow the theme
page             offline HTML pages, and that of a profile
heat_scale       the colour scale of heat maps
acceleration     the switches of an accelerated training loop, each with its speed-up
allocation       the Pareto frontier of formats
attention_cost   sparse attention: error, latency and metric by share kept
batching_curve   latency against throughput of dynamic batching
batch_sweep      latency, throughput and memory by batch size
comparison       a baseline and its variants
fusion_map       which layers run fused
hardware         a machine's ceilings
importance       scores of channels
memory           the memory timeline
memory_fit       the predicted peak and that of each change, against a memory limit
memory_pool      page faults of a call with a memory pool and without it
memory_snapshot  a memory snapshot: categories over time, segments at the peak
memory_plan      buffers packed into one arena
parallel_plan    the predicted step of each way to train on several processes
pipeline_schedule  what each stage of a pipeline computes when
profile          time by layer, as an icicle
results          everything tried in a session
roofline         layers under the machine's ceilings
sensitivity      layers by format, predicted and measured
snapshot_page    a memory snapshot as one offline HTML page
side_by_side     two profiles, layer by layer
staircase        latency by number of channels
stream           a stream: its rate over time, latency by stage
trace            the summary of a trace
training_run     a training over its steps; the curve of a rate finder
trade_off        the metric against latency and size
"""

from __future__ import annotations

from functools import partial
from importlib import import_module

from ..records import Record
from .style import Drawing

__all__ = ["Drawing", "figure"]

DRAWERS = {
    "AccelerationStatus": ".acceleration:draw",
    "Allocation": ".allocation:draw",
    "AttentionCost": ".attention_cost:draw",
    "BatchingCurve": ".batching_curve:draw",
    "BatchSweep": ".batch_sweep:draw",
    "Comparison": ".comparison:draw",
    "Fit": ".memory_fit:draw",
    "FusionMap": ".fusion_map:draw",
    "Hardware": ".hardware:draw",
    "Importance": ".importance:draw",
    "MemoryPlan": ".memory_plan:draw",
    "MemorySnapshot": ".memory_snapshot:draw",
    "MemoryTimeline": ".memory:draw",
    "ParallelPlan": ".parallel_plan:draw",
    "PipelineSchedule": ".pipeline_schedule:draw",
    "PoolCalls": ".memory_pool:draw",
    "Profile": ".profile:draw",
    "RateCurve": ".training_run:draw_rates",
    "Results": ".results:draw",
    "Roofline": ".roofline:draw",
    "Sensitivity": ".sensitivity:draw",
    "SideBySide": ".side_by_side:draw",
    "Staircase": ".staircase:draw",
    "StreamReport": ".stream:draw",
    "TraceSummary": ".trace:draw",
    "TradeOff": ".trade_off:draw",
    "TrainingRun": ".training_run:draw",
}


def figure(record: Record, *, dark: bool = False) -> Drawing:
    """The matplotlib figure of a record; it displays itself in a notebook, and `savefig` writes SVG
    or PNG.
    """
    name = type(record).__name__
    if name not in DRAWERS:
        raise TypeError(
            f"There is no drawing of a {name}; there are drawings of {', '.join(DRAWERS)}."
        )
    module, _, function = DRAWERS[name].partition(":")
    draw = partial(getattr(import_module(module, __name__), function), record)
    drawing: Drawing = draw(dark=dark)
    drawing.redraw = None if dark else draw
    return drawing
