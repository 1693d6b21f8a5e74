"""Everything tried in a session: latency bars with their likely range, and accuracy by latency."""

from __future__ import annotations

from matplotlib.axes import Axes
from matplotlib.gridspec import GridSpec
from matplotlib.ticker import FuncFormatter, LogLocator, NullFormatter

from ..records import ResultRow, Results
from .sheet import visible
from .style import Drawing, Theme, blank, end_label

MAX_NAME = 64  # characters over a bar
ROW = 0.42  # inches


def draw(results: Results, *, dark: bool = False) -> Drawing:
    """A bar per row above; below, the metric against the latency with the line of the best."""
    bars = ROW * (len(results.rows) + 1)
    drawing, axes, theme = blank(results.title, height=bars + 3.2, dark=dark)
    grid = GridSpec(2, 1, figure=drawing, height_ratios=[bars, 3.0])
    axes.set_subplotspec(grid[0, 0])
    _draw_bars(axes, results, theme)
    if any(row.is_within_limit for row in results.measured):
        _draw_scatter(
            drawing, drawing.add_subplot(grid[1, 0], facecolor=theme.paper), results, theme
        )
    return drawing


def _draw_bars(axes: Axes, results: Results, theme: Theme) -> None:
    for index, row in enumerate(results.rows):
        latency, colour = row.latency_ms or 0.0, _colour(row, theme)
        is_untold = row.verdict.tone in ("even", "untold") and row.number > 0
        axes.barh(
            index,
            latency,
            height=0.32,
            color="none" if is_untold else colour,
            edgecolor=colour,
            hatch="////" if is_untold else None,
            alpha=0.55,
            linewidth=0,
        )
        if row.likely_ms is not None:
            axes.plot(row.likely_ms, [index, index], color=theme.ink, linewidth=1.6)
        name = visible(f"{row.number}. {results.short_label(row)}")
        axes.annotate(
            name if len(name) <= MAX_NAME else f"{name[: MAX_NAME - 1]}…",
            (0, index),
            (1, 8),
            textcoords="offset points",
            color=theme.ink,
            fontsize=8.5,
            parse_math=False,
        )
        end = max(latency, *(row.likely_ms or (0.0,)))
        end_label(axes, theme, _words(row), (end, index))
    axes.set_yticks([])
    axes.set_ylim(len(results.rows) - 0.5, -0.8)
    ends = [max(row.latency_ms or 0.0, *(row.likely_ms or (0.0,))) for row in results.rows]
    axes.set_xlim(0, 2.0 * max([*ends, 1e-6]))
    axes.set_xlabel("latency, ms (line: likely range)", color=theme.ink, fontsize=9)


def _draw_scatter(drawing: Drawing, axes: Axes, results: Results, theme: Theme) -> None:
    known = {row.number: results.worth(row) for row in results.measured}
    worth = {number: value for number, value in known.items() if value is not None}
    best = [results[number] for number in results.frontier]
    axes.plot(
        [row.latency_ms or 0.0 for row in best],
        [worth[row.number] for row in best],
        color=theme.faint,
        linewidth=1.2,
        drawstyle="steps-post",
    )
    for row in results.measured:
        if not row.is_within_limit or row.number not in worth:  # refused, or without a metric
            continue
        place = row.latency_ms or 0.0, worth[row.number]
        is_filled = row.verdict.tone in ("good", "bad")
        (mark,) = axes.plot(
            [place[0]],
            [place[1]],
            marker="o",
            markersize=8 if row.number == results.current else 6,
            color=_colour(row, theme),
            markerfacecolor=None if is_filled else "none",
        )
        drawing.add_tooltip(mark, f"{row.number}. {row.label}: {row.verdict.sentence}")
        axes.annotate(
            str(row.number), place, (5, 4), textcoords="offset points",
            color=theme.ink, fontsize=8.5,
        )  # fmt: skip
    axes.set_xscale("log")
    axes.xaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
    axes.xaxis.set_minor_formatter(NullFormatter())
    axes.margins(x=0.1, y=0.2)
    axes.set_xlabel(
        "latency, ms (line: nothing tried is both faster and more accurate)",
        color=theme.ink,
        fontsize=9,
    )
    axes.set_ylabel(results.trade_off.unit, color=theme.ink, fontsize=9)
    axes.tick_params(colors=theme.ink, labelsize=8.5, length=0)
    axes.grid(color=theme.faint, alpha=0.2, linewidth=0.6)
    for name, spine in axes.spines.items():
        spine.set_visible(name == "bottom")
        spine.set_color(theme.faint)


def _colour(row: ResultRow, theme: Theme) -> str:
    colours = {"good": theme.good, "bad": theme.bad}
    return theme.faint if row.refused else colours.get(row.verdict.tone, theme.faint)


def _words(row: ResultRow) -> str:
    if row.failure or row.refused:
        return _first_clause(visible(row.failure or f"refused: {row.refused}"))
    return (
        f"{row.latency_ms:.3g} ms" if row.number == 0 and row.latency_ms else row.verdict.sentence
    )


def _first_clause(text: str) -> str:
    """The beginning of a reason that can stand alone; the table has all of it."""
    clause = text.partition("; ")[0].partition(", ")[0]
    if len(clause) <= MAX_NAME:
        return clause
    return f"{clause[:MAX_NAME].rpartition(' ')[0]} …"
