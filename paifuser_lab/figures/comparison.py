"""Latency of a baseline and its variants: median, interquartile range, and speed-up with its
interval.
"""

from __future__ import annotations

from ..records import Comparison, Measurement
from ..records.quality import readable_interval, sign
from .sheet import visible
from .style import Drawing, Theme, blank, end_label

MAX_NAME = 90  # characters that fit over a bar


def draw(comparison: Comparison, *, dark: bool = False) -> Drawing:
    """A bar per timed row, the baseline first; shorter is faster."""
    rows = [row for row in comparison.rows if row.latency_ms is not None]
    drawing, axes, theme = blank(comparison.title, height=1.0 + 0.5 * len(rows), dark=dark)
    for index, row in enumerate(rows):
        colour = _colour(row, comparison, theme)
        latency = row.latency_ms or 0.0
        low, high = row.spread_ms or (latency, latency)
        axes.barh(index, latency, height=0.34, color=colour, alpha=0.35, linewidth=0)
        axes.plot([low, high], [index, index], color=colour, linewidth=2.5, solid_capstyle="round")
        axes.plot([latency], [index], marker="o", color=colour, markersize=5)
        axes.annotate(
            _short(row.name),
            (0, index),
            (1, 9),
            textcoords="offset points",
            color=theme.ink,
            fontsize=8.5,
            parse_math=False,
        )
        end_label(axes, theme, _label(row, comparison), (max(latency, high), index))
    axes.set_yticks([])
    axes.set_ylim(len(rows) - 0.5, -0.8)
    axes.set_xlim(
        0, 1.5 * max(max(row.latency_ms or 0.0, (row.spread_ms or (0.0, 0.0))[1]) for row in rows)
    )
    axes.set_xlabel(
        "latency, ms (dot: median, line: middle half of the rounds)", color=theme.ink, fontsize=9
    )
    return drawing


def _short(name: str) -> str:
    """The name, shortened to fit; the end of a long recipe is kept, since it distinguishes it."""
    name = visible(name)
    return name if len(name) <= MAX_NAME else f"… {name[1 - MAX_NAME :]}"


def _colour(row: Measurement, comparison: Comparison, theme: Theme) -> str:
    verdict = comparison.verdict(row)
    if not verdict.word or verdict.tone == "untold" or row.name.startswith("baseline"):
        return theme.faint
    colours = {"good": theme.good, "bad": theme.bad, "even": theme.main}
    return colours[verdict.tone]


def _label(row: Measurement, comparison: Comparison) -> str:
    if row.name == comparison.baseline or row.speedup is None or row.speedup_interval is None:
        return f"{row.latency_ms:.3g} ms"
    rough = sign(comparison.verdict(row).word, comparison.quality)
    likely = readable_interval(row.speedup_interval)
    return f"{row.latency_ms:.3g} ms · {rough}{row.speedup:.2f} × ({likely})"
