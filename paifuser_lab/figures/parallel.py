"""The predicted step of each way to train on several processes; a pipeline's stages over time."""

from __future__ import annotations

from collections.abc import Sequence

from matplotlib.axes import Axes
from matplotlib.patches import Patch, Rectangle

from ..records import ParallelPlan, PipelineSchedule, PipelineSlot, readable_bytes
from .sheet import visible, without_middle, wrapped
from .style import Drawing, Theme, blank, end_label, legend_beside


def draw(plan: ParallelPlan, *, dark: bool = False) -> Drawing:
    """A bar for each strategy, the fastest first; those that are not possible have none."""
    height = 1.4 + 0.34 * len(plan.options)
    drawing, axes, theme = blank("\n".join(wrapped(plan.title, 78)), height=height, dark=dark)
    longest = max((option.step_ms or 0.0 for option in plan.options), default=1.0)
    for row, option in enumerate(plan.options):
        if option.step_ms is None:
            end_label(axes, theme, "not possible", (0, row))
            continue
        axes.barh(row, option.compute_ms, height=0.62, color=theme.compute)
        waited = max(0.0, option.step_ms - option.compute_ms)
        axes.barh(row, waited, left=option.compute_ms, height=0.62, color=theme.overhead)
        sent = readable_bytes(round(option.sent_bytes))
        text = f"{option.step_ms:.3g} ms" + (f", {sent} sent" if option.sent_bytes else "")
        end_label(axes, theme, text, (option.compute_ms + waited, row))
    names = [visible(option.strategy) for option in plan.options]
    axes.set_yticks(range(len(names)), names, parse_math=False)
    axes.set_ylim(len(names) - 0.4, -0.6)
    axes.set_xlim(0, 1.35 * longest)
    axes.set_xlabel("milliseconds of a step, predicted", color=theme.ink, fontsize=9)
    legend_beside(
        axes,
        theme,
        [Patch(facecolor=theme.compute), Patch(facecolor=theme.overhead)],
        ["computes", "waits"],
    )
    return drawing


HEIGHT = 0.8  # of a box; the distance between stages is 1


def draw_pipeline(schedule: PipelineSchedule, *, dark: bool = False) -> Drawing:
    """The predicted step above, the measured one below it, on one axis of time."""
    parts = [("predicted", schedule.predicted)]
    if schedule.measured:
        parts.append(("measured", schedule.measured))
    count = len(schedule.stages)
    height = 1.5 + 0.36 * count * len(parts)
    drawing, axes, theme = blank("\n".join(wrapped(schedule.title, 78)), height=height, dark=dark)
    names, places = [], []
    for index, (name, slots) in enumerate(parts):
        top = index * (count + 0.6)
        _draw_slots(drawing, axes, schedule, slots, top, theme)
        for stage, row in enumerate(schedule.stages):
            first = without_middle(visible(row.first_layer or "the model itself"), 20)
            names.append(f"{name} {stage}: {first} …")
            places.append(top + stage)
    axes.set_yticks(places, names, parse_math=False)
    axes.set_ylim(max(places) + 0.7, -0.7)
    end = max((slot.end_ms for _, slots in parts for slot in slots), default=1.0)
    axes.set_xlim(0, end * 1.01)
    axes.set_xlabel("milliseconds since the step began", color=theme.ink, fontsize=9)
    handles = [
        Patch(facecolor=theme.compute, label="forward"),
        Patch(facecolor=theme.memory, label="backward"),
    ]
    legend_beside(axes, theme, list(handles), ["forward", "backward"])
    return drawing


def _draw_slots(
    drawing: Drawing,
    axes: Axes,
    schedule: PipelineSchedule,
    slots: Sequence[PipelineSlot],
    top: float,
    theme: Theme,
) -> None:
    origin = min((slot.begin_ms for slot in slots), default=0.0)
    end = max((slot.end_ms for slot in slots), default=1.0)
    for slot in slots:
        width = slot.end_ms - slot.begin_ms
        box = Rectangle(
            (slot.begin_ms - origin, top + slot.stage - HEIGHT / 2),
            width,
            HEIGHT,
            facecolor=theme.memory if slot.is_backward else theme.compute,
            edgecolor=theme.paper,
            linewidth=0.6,
        )
        axes.add_patch(box)
        direction = "backward" if slot.is_backward else "forward"
        drawing.add_tooltip(
            box,
            f"stage {slot.stage}, microbatch {slot.microbatch}, {direction}: {width:.3g} ms",
        )
        if width > 0.025 * (end - origin):
            axes.text(
                slot.begin_ms - origin + width / 2,
                top + slot.stage,
                str(slot.microbatch),
                ha="center",
                va="center",
                color=theme.paper,
                fontsize=8,
            )
