"""The predicted step of each way to train on several processes; a pipeline's stages over time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from matplotlib.patches import Patch

from ..records import ParallelPlan, PipelineSchedule, PipelineSlot, readable_bytes
from .style import Drawing, Plot, blank, visible, without_middle


def draw(plan: ParallelPlan, *, dark: bool = False) -> Drawing:
    """A bar for each strategy, the fastest first; those that are not possible have none."""
    height = 1.4 + 0.34 * len(plan.options)
    axes = blank(plan.title, height=height, dark=dark)
    theme = axes.theme
    longest = max((option.step_ms or 0.0 for option in plan.options), default=1.0)
    for row, option in enumerate(plan.options):
        if option.step_ms is None:
            axes.end_label("not possible", (0, row))
            continue
        axes.barh(row, option.compute_ms, height=0.62, color=theme.compute)
        waited = max(0.0, option.step_ms - option.compute_ms)
        axes.barh(row, waited, left=option.compute_ms, height=0.62, color=theme.overhead)
        sent = readable_bytes(round(option.sent_bytes))
        text = f"{option.step_ms:.3g} ms" + (f", {sent} sent" if option.sent_bytes else "")
        axes.end_label(text, (option.compute_ms + waited, row))
    names = [visible(option.strategy) for option in plan.options]
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 1.35 * longest)
    axes.label(x="milliseconds of a step, predicted")
    axes.legend_beside(
        [Patch(facecolor=theme.compute), Patch(facecolor=theme.overhead)],
        ["computes", "waits"],
    )
    return axes.drawing


HEIGHT = 0.8  # of a box; the distance between stages is 1


def draw_pipeline(schedule: PipelineSchedule, *, dark: bool = False) -> Drawing:
    """The predicted step above, the measured one below it, on one axis of time."""
    parts = [("predicted", schedule.predicted)]
    if schedule.measured:
        parts.append(("measured", schedule.measured))
    count = len(schedule.stages)
    height = 1.5 + 0.36 * count * len(parts)
    axes = blank(schedule.title, height=height, dark=dark)
    names, places = [], []
    for index, (name, slots) in enumerate(parts):
        top = index * (count + 0.6)
        _draw_slots(axes, slots, top)
        for stage, row in enumerate(schedule.stages):
            first = without_middle(visible(row.first_layer or "the model itself"), 20)
            names.append(f"{name} {stage}: {first} …")
            places.append(top + stage)
    axes.set_yticks(places, names, parse_math=False)
    axes.set_ylim(max(places) + 0.7, -0.7)
    end = max((slot.end_ms for _, slots in parts for slot in slots), default=1.0)
    axes.set_xlim(0, end * 1.01)
    axes.label(x="milliseconds since the step began")
    colours = (axes.theme.compute, axes.theme.memory)
    axes.legend_beside([Patch(facecolor=colour) for colour in colours], ["forward", "backward"])
    return axes.drawing


def _draw_slots(axes: Plot, slots: Sequence[PipelineSlot], top: float) -> None:
    theme = axes.theme
    origin = min((slot.begin_ms for slot in slots), default=0.0)
    end = max((slot.end_ms for slot in slots), default=1.0)
    for slot in slots:
        x, y, width = slot.begin_ms - origin, top + slot.stage, slot.end_ms - slot.begin_ms
        direction = "backward" if slot.is_backward else "forward"
        tooltip = f"stage {slot.stage}, microbatch {slot.microbatch}, {direction}: {width:.3g} ms"
        colour = theme.memory if slot.is_backward else theme.compute
        look: dict[str, Any] = {"facecolor": colour, "edgecolor": theme.paper, "linewidth": 0.6}
        axes.box((x, y - HEIGHT / 2), (width, HEIGHT), tooltip=tooltip, **look)
        if width > 0.025 * (end - origin):
            middle: dict[str, Any] = {
                "ha": "center",
                "va": "center",
                "color": theme.paper,
                "size": 8,
            }
            axes.note(str(slot.microbatch), (x + width / 2, y), **middle)
