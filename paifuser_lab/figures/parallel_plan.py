"""The predicted time of a step of each way to train on several processes: computing and waiting."""

from __future__ import annotations

from matplotlib.patches import Patch

from ..records import ParallelPlan, readable_bytes
from .sheet import visible, wrapped
from .style import Drawing, blank, end_label, legend_beside


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
