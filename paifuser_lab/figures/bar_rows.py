"""Rows of horizontal bars: a name on the left, stacked parts, and a text beside them."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from matplotlib.axes import Axes

from .sheet import visible, without_middle
from .style import Drawing, Theme

HEIGHT = 0.62  # of a bar, of the distance between two
WIDEST_NAME = 36  # characters
SMALL = 8  # points


class Part(NamedTuple):
    """A part of a bar."""

    length: float
    colour: str
    tooltip: str
    label: str = ""  # in the legend


class BarRow(NamedTuple):
    """A bar; without parts its name alone."""

    name: str
    parts: tuple[Part, ...]
    text: str


def draw_bar_rows(drawing: Drawing, axes: Axes, theme: Theme, rows: Sequence[BarRow]) -> None:
    """Draw the rows, the first at the top."""
    for place, row in enumerate(rows):
        end = 0.0
        for length, colour, tooltip, label in row.parts:
            (bar,) = axes.barh(
                place, length, left=end, height=HEIGHT, color=colour, alpha=0.85, label=label
            )
            drawing.add_tooltip(bar, tooltip)
            end += length
        if row.parts:
            axes.annotate(
                row.text,
                (end, place),
                (4, 0),
                textcoords="offset points",
                va="center",
                color=theme.ink,
                fontsize=SMALL,
            )
    names = [without_middle(visible(row.name), WIDEST_NAME) for row in rows]
    axes.set_yticks(range(len(rows)), names, fontsize=SMALL, parse_math=False)
    axes.set_ylim(len(rows) - 0.5, -0.5)
