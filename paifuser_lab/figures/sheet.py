"""A drawing laid out in inches, so that names, bars and numbers stand in columns; what a model
names is fitted into its place.
"""

from __future__ import annotations

import textwrap

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from .style import Drawing, Theme, theme_of
from .svg import printable

WIDTH = 7.0
MARGIN = 0.1
LINE = 0.19  # a line of the title
ROW = 0.225
BODY, SMALL = 8.5, 7.8
HATCHES = {
    "memory": "/////",
    "overhead": "|||||",
}  # beside the colour, for eyes and printers without it
MARKERS = {"compute": "o", "memory": "s", "overhead": "^"}
BOUNDS = ("compute", "memory", "overhead")


class Sheet:
    """A drawing and a pen: x and y are inches from the left and from under the title."""

    def __init__(self, title: str, *, height: float, dark: bool) -> None:
        lines = wrapped(title)
        self.top = MARGIN + LINE * len(lines) + 0.06
        self.height = self.top + height
        self.theme: Theme = theme_of(dark=dark)
        self.drawing = Drawing(figsize=(WIDTH, self.height), facecolor=self.theme.paper)
        FigureCanvasAgg(self.drawing)
        self.drawing.set_label(visible(title))
        self.axes: Axes = self.drawing.add_axes((0.0, 0.0, 1.0, 1.0))
        self.axes.set_axis_off()
        self.axes.set_xlim(0, WIDTH)
        self.axes.set_ylim(self.height - self.top, -self.top)
        for place, line in enumerate(lines):
            self.fit(
                MARGIN,
                LINE * (place + 0.5) + MARGIN - self.top,
                line,
                WIDTH - 2 * MARGIN,
                size=10.0,
            )

    def write(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = BODY,
        side: str = "left",
        colour: str = "",
        **more: str,
    ) -> Text:
        """Text at the height of its middle; `side` is the side that stays where it is."""
        return self.axes.text(
            x,
            y,
            visible(text),
            ha=side,
            va="center_baseline",
            fontsize=size,
            color=colour or self.theme.ink,
            parse_math=False,
            **more,  # type: ignore[arg-type]
        )

    def fit(self, x: float, y: float, text: str, width: float, *, size: float = BODY) -> None:
        """Text that gives up its middle where it is too long."""
        mark = self.write(x, y, text, size=size)
        full = mark.get_text()
        kept = len(full)
        while kept > 5 and self.width_of(mark) > width:
            kept = min(kept - 1, int(kept * width / self.width_of(mark)) + 1)
            mark.set_text(without_middle(full, kept))

    def width_of(self, mark: Text) -> float:
        """How many inches a text takes."""
        return mark.get_window_extent().width / self.drawing.dpi

    def bar(
        self, x: float, y: float, width: float, height: float, bound: str | None, tooltip: str = ""
    ) -> None:
        """A bar around a height, in the colour and hatch of what binds it."""
        theme = self.theme
        mark = Rectangle(
            (x, y - height / 2),
            width,
            height,
            facecolor=theme.of(bound),
            edgecolor=theme.paper,
            linewidth=0,
            hatch=HATCHES.get(bound or ""),
        )
        self.axes.add_patch(mark)
        if tooltip:
            self.drawing.add_tooltip(mark, tooltip)

    def line(self, xs: tuple[float, float], y: float, colour: str, width: float = 1.0) -> None:
        """A thin line along a row."""
        self.axes.plot(xs, (y, y), color=colour, linewidth=width, solid_capstyle="butt")

    def dot(self, x: float, y: float, bound: str) -> None:
        """The mark of a bound, the same as on the roofline."""
        self.axes.plot(
            [x],
            [y],
            marker=MARKERS[bound],
            markersize=4.5,
            color=self.theme.of(bound),
            linestyle="none",
        )


def visible(text: str) -> str:
    """A text on one line, without what cannot be drawn."""
    return printable(" ".join(text.split()))


def without_middle(text: str, widest: int) -> str:
    """'stages.0.layers.1.layer.1.convolution', 20 → 'stages.0….convolution'."""
    if len(text) <= widest:
        return text
    tail = (2 * widest) // 3  # what tells layers apart stands at the end
    return f"{text[: max(1, widest - tail - 1)]}…{text[-tail:]}"


def wrapped(title: str, width: int = 92) -> list[str]:
    """A title in lines that fit the drawing's width."""
    return textwrap.wrap(visible(title), width, max_lines=4, placeholder=" …") or [""]


def decimals(largest: float) -> int:
    """How many decimals a column needs, so that its largest number has three or four figures."""
    return 1 if largest >= 100 else 2 if largest >= 10 else 3
