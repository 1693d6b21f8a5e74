"""A stream: frames a second over its time with what went wrong, and latency by stage."""

from __future__ import annotations

from ..records import Latency, StreamReport
from .style import Drawing, Plot, blank

MARKS = {"hedged": "^", "sent again": "v", "lost": "X", "hung": "X", "set aside": "x"}
SPARE = 1.28  # the room right of the longest bar, for its figures


def draw(report: StreamReport, *, dark: bool = False) -> Drawing:
    """The rate above, a bar for each stage's latency below."""
    rows = [*report.stage_latency, *([report.latency] if report.latency else [])]
    height = 2.1 + 0.32 * len(rows)
    axes = blank(report.title, height=height, dark=dark)
    if rows:
        grid = axes.drawing.add_gridspec(2, 1, height_ratios=[1.5, 0.2 + 0.32 * len(rows)])
        axes.set_subplotspec(grid[0])
        _draw_latencies(axes.drawing.add_plot(grid[1]), rows)
    _draw_rate(axes, report)
    return axes.drawing


def _draw_rate(axes: Plot, report: StreamReport) -> None:
    theme = axes.theme
    at, rates = [list(column) for column in zip(*report.rates, strict=True)] or [[], []]
    axes.plot(at, rates, color=theme.main, linewidth=1.6)
    top = max([*rates, report.frames_per_s, 1e-9])
    axes.set_ylim(0, 1.15 * top)
    axes.set_xlim(0, max([report.elapsed_s, *at, 1e-9]))
    for kind, marker in MARKS.items():
        times = [event.at_s for event in report.events if event.kind == kind]
        if times:
            axes.plot(
                times,
                [1.06 * top] * len(times),
                marker,
                color=theme.bad,
                markersize=4,
                label=f"{kind} ({len(times)})",
            )
    if axes.get_legend_handles_labels()[0]:
        axes.legend(
            loc="lower right", fontsize=8, frameon=False, labelcolor=theme.ink, ncols=len(MARKS)
        )
    axes.label(x="seconds", y="frames a second")


def _draw_latencies(axes: Plot, rows: list[Latency]) -> None:
    """p50 as a bar, from there to p99 a line with a tick at p95."""
    theme = axes.theme
    names = [row.name for row in rows]
    places = range(len(rows))
    axes.barh(places, [row.p50_ms for row in rows], height=0.5, color=theme.main)
    for place, row in zip(places, rows, strict=True):
        axes.plot([row.p50_ms, row.p99_ms], [place, place], color=theme.ink, linewidth=1.2)
        axes.plot([row.p95_ms], [place], "|", color=theme.ink, markersize=7)
        text = f"{row.p50_ms:.3g} · {row.p95_ms:.3g} · {row.p99_ms:.3g}"
        axes.end_label(text, (row.p99_ms, place))
    axes.set_yticks(places, names, parse_math=False)
    axes.set_ylim(len(rows) - 0.4, -0.6)
    axes.set_xlim(0, SPARE * max([row.p99_ms for row in rows] or [1.0]) or 1.0)
    axes.label(x="ms a frame: p50 · p95 · p99")
