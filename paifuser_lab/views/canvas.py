"""A picture drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

from matplotlib.patches import Patch
from matplotlib.ticker import NullLocator

from .picture import (
    Area,
    Axis,
    Boxes,
    Column,
    Dots,
    Labels,
    Line,
    Mark,
    Panel,
    Picture,
    Rules,
    Style,
)
from .style import Drawing, Plot, blank, visible, without_middle

PIXELS_PER_INCH = 85
WIDEST_NAME = 36  # characters
MOST_TOOLTIPS = 600  # of a mark, its largest rows
STYLES: dict[Style, Any] = {"solid": "solid", "dashed": (0, (4, 3)), "dotted": (0, (1, 1.5))}
SHAPES = {
    "disc": "o", "ring": "o", "cross": "x", "up": "^", "down": "v", "square": "s", "plus": "+",
    "tick": "|",
}  # fmt: skip


def draw(picture: Picture, *, dark: bool = False) -> Drawing:
    """The panels row by row, a legend beside the first."""
    rows = [row for one in (picture, *picture.below) for row in one.rows]
    heights = [max(panel.height for panel in row) / PIXELS_PER_INCH for row in rows]
    first = blank(picture.title, height=0.5 + sum(heights), dark=dark)
    grid = first.drawing.add_gridspec(len(rows), 1, height_ratios=heights)
    for row, panels in enumerate(rows):
        cells = grid[row].subgridspec(1, len(panels))
        for column, panel in enumerate(panels):
            if row == column == 0:
                first.set_subplotspec(cells[0])
                _draw_panel(first, panel)
            else:
                _draw_panel(first.drawing.add_plot(cells[column]), panel)
    if picture.legend:
        first.legend_beside(
            [Patch(facecolor=first.theme.tone(tone), alpha=0.78) for tone, _ in picture.legend],
            [without_middle(visible(name), 24) for _, name in picture.legend],
        )
    return first.drawing


def _draw_panel(axes: Plot, panel: Panel) -> None:
    for name, axis in (("x", panel.x), ("y", panel.y)):
        _scale(axes, name, axis)
    axes.label(x=visible(panel.x.label), y=visible(panel.y.label))
    for mark in panel.marks:
        draw_mark(mark, axes)


def _scale(axes: Plot, name: str, axis: Axis) -> None:
    """Set an axis's scale, ends and ticks; the first of a band is on top."""
    if axis.kind == "log":
        getattr(axes, f"set_{name}scale")("log")
    is_down = axis.kind == "band" and name == "y"
    ends = (axis.high, axis.low) if is_down else (axis.low, axis.high)
    getattr(axes, f"set_{name}lim")(*ends)
    names = [without_middle(visible(text), WIDEST_NAME) for text in axis.names]
    getattr(axes, f"set_{name}ticks")(axis.ticks, names, parse_math=False)
    getattr(axes, f"{name}axis").set_minor_locator(NullLocator())


def _tones(mark: Mark, axes: Plot, count: int) -> list[str]:
    """The colour of each row."""
    if isinstance(mark.tone, str):
        return [axes.theme.tone(mark.tone)] * count
    return [axes.theme.tone(tone) for tone in mark.tone]


def _tooltips(mark: Mark, sizes: Sequence[float]) -> list[str]:
    """The tooltip of each row; '' for those smaller than many others."""
    if mark.tips is None:
        return [""] * len(sizes)
    order = sorted(range(len(sizes)), key=lambda index: -sizes[index])
    texts = [""] * len(sizes)
    for index in order[:MOST_TOOLTIPS]:
        texts[index] = mark.tips.text(index)
    return texts


@singledispatch
def draw_mark(mark: Mark, axes: Plot) -> None:
    """Draw a mark; each kind has a function below."""
    raise TypeError(f"There is no drawing of {type(mark).__name__}.")


@draw_mark.register
def _(mark: Boxes, axes: Plot) -> None:
    sizes = [(x2 - x) * abs(y2 - y) for x, x2, y, y2 in _rows(mark.x, mark.x2, mark.y, mark.y2)]
    rows = _rows(mark.x, mark.x2, mark.y, mark.y2)
    look: dict[str, Any] = {"edgecolor": axes.theme.paper, "linewidth": 0.4, "alpha": 0.78}
    for (x, x2, y, y2), tone, tooltip in zip(
        rows, _tones(mark, axes, len(rows)), _tooltips(mark, sizes), strict=True
    ):
        if mark.is_hollow:
            look |= {"edgecolor": tone, "linewidth": 0.7}
        face = "none" if mark.is_hollow else tone
        axes.box((x, y), (x2 - x, y2 - y), tooltip=tooltip, facecolor=face, **look)


@draw_mark.register
def _(mark: Line, axes: Plot) -> None:
    look: dict[str, Any] = {"linewidth": mark.width, "linestyle": STYLES[mark.style]}
    if mark.is_stepped:
        look["drawstyle"] = "steps-post"
    axes.plot(mark.x, mark.y, color=_tones(mark, axes, 1)[0], **look)


@draw_mark.register
def _(mark: Area, axes: Plot) -> None:
    tone = _tones(mark, axes, 1)[0]
    axes.fill_between(mark.x, mark.low, mark.high, step="post", color=tone, alpha=0.78, linewidth=0)


@draw_mark.register
def _(mark: Dots, axes: Plot) -> None:
    rows = _rows(mark.x, mark.y)
    is_hollow = mark.shape == "ring"
    look: dict[str, Any] = {"marker": SHAPES[mark.shape], "markersize": mark.size}
    if mark.shape in ("ring", "cross", "plus", "tick"):
        look["markeredgewidth"] = 1.6
    tooltips = _tooltips(mark, [1.0] * len(rows))
    for at, tone, tooltip in zip(rows, _tones(mark, axes, len(rows)), tooltips, strict=True):
        axes.mark((at[0], at[1]), tone, tooltip=tooltip, is_hollow=is_hollow, **look)


@draw_mark.register
def _(mark: Rules, axes: Plot) -> None:
    is_right = mark.side == "right"
    for index, (at, tone) in enumerate(zip(mark.at, _tones(mark, axes, len(mark.at)), strict=True)):
        across = axes.axvline if mark.axis == "x" else axes.axhline
        across(at, color=tone, linewidth=1.1, linestyle=STYLES[mark.style])
        if not mark.names:
            continue
        if mark.axis == "x":
            place, system, by = (
                (at, 1.0),
                ("data", "axes fraction"),
                (5, -15 if mark.is_below else -3),
            )
            look: dict[str, Any] = {"va": "top"}
        else:
            place = (1.0 if is_right else 0.0, at)
            system, by = ("axes fraction", "data"), (4, -3 if mark.is_below else 3)
            look = {"va": "top" if mark.is_below else "bottom"}
        text = visible(mark.names[index])
        axes.note(text, place, by, to_left=is_right, xycoords=system, size=8, **look)


@draw_mark.register
def _(mark: Labels, axes: Plot) -> None:
    weight: dict[str, Any] = {"weight": "bold", "size": 9.5} if mark.is_bold else {}
    rows = _rows(mark.x, mark.y)
    for (x, y), text, tone in zip(rows, mark.texts, _tones(mark, axes, len(rows)), strict=True):
        is_left = mark.side == "left"
        look = {"color": tone, "va": "center", **weight}
        axes.note(visible(text), (x, y), (7, mark.lift), to_left=is_left, **look)


def _rows(*columns: Column) -> list[tuple[float, ...]]:
    """The rows of columns, without those that have no place."""
    return [row for row in zip(*columns, strict=True) if not any(map(math.isnan, row))]
