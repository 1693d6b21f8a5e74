"""A drawing laid out in inches, so that names, bars and numbers are in columns; long names are
shortened to fit.
"""

from __future__ import annotations

import textwrap

from matplotlib.axes import Axes
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.patches import Rectangle
from matplotlib.text import Text

from .style import Drawing, Theme, printable, theme_of

WIDTH = 7.0
MARGIN = 0.1
LINE = 0.19  # a line of the title
ROW = 0.225
BODY, SMALL = 8.5, 7.8
# in addition to the colours, for colour-blind readers and black-and-white prints
HATCHES = {"memory": "/////", "overhead": "|||||"}
MARKERS = {"compute": "o", "memory": "s", "overhead": "^"}
BOUNDS = ("compute", "memory", "overhead")


class Sheet:
    """A drawing with methods to draw on it: x and y are inches from the left and from the title."""

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
        for index, line in enumerate(lines):
            self.fit(
                MARGIN,
                LINE * (index + 0.5) + MARGIN - self.top,
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
        """Write text centred at height y; `side` is the alignment at x."""
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
        """Write text, with its middle cut out if it is too long."""
        mark = self.write(x, y, text, size=size)
        full = mark.get_text()
        count = len(full)
        while count > 5 and self.width_of(mark) > width:
            count = min(count - 1, int(count * width / self.width_of(mark)) + 1)
            mark.set_text(without_middle(full, count))

    def width_of(self, mark: Text) -> float:
        """The width of a text in inches."""
        return mark.get_window_extent().width / self.drawing.dpi

    def bar(
        self, x: float, y: float, width: float, height: float, bound: str | None, tooltip: str = ""
    ) -> None:
        """Draw a bar centred at height y, in the colour and hatch of its bound."""
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
        """Draw a thin horizontal line."""
        self.axes.plot(xs, (y, y), color=colour, linewidth=width, solid_capstyle="butt")

    def dot(self, x: float, y: float, bound: str) -> None:
        """Draw the mark of a bound, the same as on the roofline."""
        self.axes.plot(
            [x],
            [y],
            marker=MARKERS[bound],
            markersize=4.5,
            color=self.theme.of(bound),
            linestyle="none",
        )


def visible(text: str) -> str:
    """A text on one line, without unprintable characters."""
    return printable(" ".join(text.split()))


def without_middle(text: str, widest: int) -> str:
    """'stages.0.layers.1.layer.1.convolution', 20 → 'stages.0….convolution'."""
    if len(text) <= widest:
        return text
    tail = (2 * widest) // 3  # layer paths differ at their ends
    return f"{text[: max(1, widest - tail - 1)]}…{text[-tail:]}"


def wrapped(title: str, width: int = 92) -> list[str]:
    """A title wrapped to the drawing's width."""
    return textwrap.wrap(visible(title), width, max_lines=4, placeholder=" …") or [""]


def decimals(largest: float) -> int:
    """The number of decimals with which a column's largest number has three or four digits."""
    return 1 if largest >= 100 else 2 if largest >= 10 else 3
