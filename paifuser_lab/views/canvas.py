"""A picture drawn by matplotlib."""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import singledispatch
from typing import Any

import numpy
from matplotlib.artist import Artist
from matplotlib.colors import ListedColormap
from matplotlib.lines import Line2D
from matplotlib.patches import Patch, Rectangle
from matplotlib.ticker import NullLocator

from .heat_scale import ink_on, ramp_of
from .picture import (
    WIDEST_NAME,
    Area,
    Axis,
    Boxes,
    Column,
    Dots,
    Heat,
    Key,
    Labels,
    Line,
    Mark,
    Names,
    Panel,
    Picture,
    Rules,
    Style,
)
from .style import Drawing, Plot, Theme, blank, visible, without_middle, wrapped

PIXELS_PER_INCH = 85
MOST_ITEMS = 6
WIDEST_ITEM = 78  # characters beside names: a longer line leaves the panels no room
LINE = 0.16  # inches of a line above the panels
MOST_TOOLTIPS = 600  # of a mark, its largest rows
THINNEST = 1.5  # pixels: a thinner box would be all edge
STYLES: dict[Style, Any] = {"solid": "solid", "dashed": (0, (4, 3)), "dotted": (0, (1, 1.5))}
BESIDE = {"left": (-7, "right"), "right": (7, "left"), "middle": (0, "center")}
SHAPES = {
    "disc": "o", "ring": "o", "cross": "x", "up": "^", "down": "v", "square": "s", "plus": "+",
    "tick": "|", "diamond": "D",
}  # fmt: skip


def draw(picture: Picture, *, dark: bool = False) -> Drawing:
    """The panels row by row, a legend beside the first."""
    rows = [row for one in (picture, *picture.others) for row in one.rows]
    if not rows:
        return _only_text(picture, dark)
    heights = [max(panel.height for panel in row) / PIXELS_PER_INCH for row in rows]
    listed = wrapped(picture.sentence, 92) if picture.sentence else []
    for what, about in picture.items[:MOST_ITEMS]:
        listed += wrapped(f"{what}: {about}", WIDEST_ITEM, most=2)
    first = blank(picture.title, height=0.5 + sum(heights) + LINE * len(listed), dark=dark)
    grid = first.drawing.add_gridspec(len(rows), 1, height_ratios=heights)
    for row, panels in enumerate(rows):
        is_alone = len(panels) == 1  # and then as wide as the others, with their margins
        cells = [grid[row]] if is_alone else grid[row].subgridspec(1, len(panels))
        for column, panel in enumerate(panels):
            if row == column == 0:
                first.set_subplotspec(cells[0])
                draw_panel(first, panel)
            else:
                draw_panel(first.drawing.add_plot(cells[column]), panel)
    if listed:
        look: dict[str, Any] = {"fontsize": 8, "linespacing": 1.4, "parse_math": False}
        first.set_title("\n".join(listed), loc="left", color=first.theme.ink, **look)
    if picture.legend:
        first.legend_beside(
            [_handle(Key(*key), first.theme) for key in picture.legend],
            [without_middle(visible(key[1]), 24) for key in picture.legend],
        )
    return first.drawing


def _only_text(picture: Picture, dark: bool) -> Drawing:
    """What is said where there is nothing to draw, as of a search that had no time."""
    lines = wrapped(picture.sentence or picture.note)
    axes = blank(picture.title, height=0.6 + 0.2 * len(lines), dark=dark)
    axes.set_axis_off()
    look: dict[str, Any] = {"va": "top", "fontsize": 9, "parse_math": False}
    axes.text(0, 1, "\n".join(lines), color=axes.theme.soft, **look)
    return axes.drawing


def _handle(key: Key, theme: Theme) -> Artist:
    """What stands for a tone in the legend."""
    colour = theme.tone(key.tone)
    if not key.shape:
        return Patch(facecolor=colour, alpha=0.78)
    look: dict[str, Any] = {"marker": SHAPES[key.shape], "linestyle": "none", "markersize": 6}
    return Line2D([], [], color=colour, **look)


def draw_panel(axes: Plot, panel: Panel) -> None:
    """Draw a panel's axes and marks."""
    for name, axis in (("x", panel.x), ("y", panel.y)):
        _scale(axes, name, axis)
    look: dict[str, Any] = {"color": axes.theme.ink, "fontsize": 9, "parse_math": False}
    axes.set_xlabel(visible(panel.x.label), **look)
    axes.set_ylabel(visible(panel.y.label), **look)
    if not len(panel.x.ticks) and not panel.x.label:
        axes.spines["bottom"].set_visible(False)
    for mark in panel.marks:
        draw_mark(mark, axes)
    if panel.handle is not None:
        at = panel.handle.at[panel.handle.start]
        axes.axhline(at, color=axes.theme.tone(panel.handle.tone), linewidth=1.6)


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
    tones = [mark.tone] * count if isinstance(mark.tone, str) else mark.tone
    return [_colour(tone, axes.theme) for tone in tones]


def _colour(tone: str, theme: Theme) -> str:
    what, _, step = tone.rpartition("heat-")
    return ink_on(int(step), theme) if what == "on-" else theme.tone(tone)


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
    across = axes.get_xaxis_transform()
    look: dict[str, Any] = {"edgecolor": axes.theme.paper, "alpha": 0.78}
    for (x, x2, y, y2), tone, tooltip in zip(
        rows, _tones(mark, axes, len(rows)), _tooltips(mark, sizes), strict=True
    ):
        wide = numpy.ptp(across.transform([(x, 0), (x2, 0)])[:, 0])
        look["linewidth"] = 0 if wide < THINNEST else 0.4
        if mark.is_hollow:
            look |= {"edgecolor": tone, "linewidth": 0.7}
        if mark.is_tint:
            look |= {"alpha": 0.09, "linewidth": 0}
        face = "none" if mark.is_hollow else tone
        box = axes.add_patch(Rectangle((x, y), x2 - x, y2 - y, facecolor=face, **look))
        axes.tooltip(box, tooltip)


@draw_mark.register
def _(mark: Line, axes: Plot) -> None:
    look: dict[str, Any] = {"linewidth": mark.width, "linestyle": STYLES[mark.style]}
    if mark.is_stepped:
        look["drawstyle"] = "steps-post"
    axes.plot(mark.x, mark.y, color=_tones(mark, axes, 1)[0], **look)


@draw_mark.register
def _(mark: Area, axes: Plot) -> None:
    tone = _tones(mark, axes, 1)[0]
    look: dict[str, Any] = {"alpha": 0.22 if mark.is_tint else 0.78, "linewidth": 0}
    axes.fill_between(mark.x, mark.low, mark.high, step="post", color=tone, **look)


@draw_mark.register
def _(mark: Heat, axes: Plot) -> None:
    shades = numpy.frombuffer(mark.shades, "u1").reshape(len(mark.x) - 1, len(mark.y) - 1)
    cells = numpy.ma.masked_equal(shades.T, 0)
    colours = ListedColormap(ramp_of(axes.theme))
    axes.pcolormesh(mark.x, mark.y, cells, vmin=1, vmax=9, cmap=colours, rasterized=True)


@draw_mark.register
def _(mark: Dots, axes: Plot) -> None:
    count = len(mark.x)
    shapes = [mark.shape] * count if isinstance(mark.shape, str) else mark.shape
    sizes = [mark.size] * count if isinstance(mark.size, int | float) else mark.size
    tooltips, tones = _tooltips(mark, sizes), _tones(mark, axes, count)
    for x, y, shape, size, tone, tooltip in zip(
        mark.x, mark.y, shapes, sizes, tones, tooltips, strict=True
    ):
        if not (_has_place(x, axes.get_xscale()) and _has_place(y, axes.get_yscale())):
            continue
        look: dict[str, Any] = {"marker": SHAPES[shape], "markersize": size}
        if shape in ("ring", "cross", "plus", "tick"):
            look["markeredgewidth"] = 1.6
        else:
            look |= {"markeredgecolor": axes.theme.paper, "markeredgewidth": 0.5, "alpha": 0.85}
        if shape == "ring":
            look["markerfacecolor"] = "none"
        (dot,) = axes.plot([x], [y], color=tone, linestyle="none", **look)
        axes.tooltip(dot, tooltip)


@draw_mark.register
def _(mark: Rules, axes: Plot) -> None:
    is_right = mark.side == "right"
    for index, (at, tone) in enumerate(zip(mark.at, _tones(mark, axes, len(mark.at)), strict=True)):
        across = axes.axvline if mark.axis == "x" else axes.axhline
        across(at, color=tone, linewidth=1.1, linestyle=STYLES[mark.style])
        if not mark.names:
            continue
        if mark.axis == "x":
            place = (at, 1.0)
            system, by = ("data", "axes fraction"), (5, -15 if mark.is_below else -3)
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
        off, ha = BESIDE[mark.side]
        look = {"color": tone, "ha": ha, "va": "center", **weight}
        axes.note(visible(text), (x, y), (off, mark.lift), **look)


@draw_mark.register
def _(mark: Names, axes: Plot) -> None:
    line = {"arrowstyle": "-", "color": axes.theme.soft, "linewidth": 0.7, "shrinkB": 0}
    rows = _rows(mark.x, mark.y, mark.across, mark.up)
    for (x, y, *by), text, tone in zip(
        rows, mark.texts, _tones(mark, axes, len(rows)), strict=True
    ):
        by = [72 / PIXELS_PER_INCH * pixels for pixels in by]
        look: dict[str, Any] = {"color": tone, "ha": "center", "va": "center", "arrowprops": line}
        axes.note(visible(text), (x, y), (by[0], by[1]), **look)


def _has_place(value: float, scale: str) -> bool:
    return math.isfinite(value) and (scale != "log" or value > 0)


def _rows(*columns: Column) -> list[tuple[float, ...]]:
    """The rows of columns, without those that have no place."""
    return [row for row in zip(*columns, strict=True) if not any(map(math.isnan, row))]
