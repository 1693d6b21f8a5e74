"""A drawing laid out in inches, so that names, bars and numbers are in columns; long names are
shortened to fit.
"""

from __future__ import annotations

from typing import Any

from matplotlib.text import Text

from .style import Drawing, visible, without_middle, wrapped

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
        lines = wrapped(title, 92)
        self.top = MARGIN + LINE * len(lines) + 0.06
        self.height = self.top + height
        self.drawing = Drawing(dark=dark, figsize=(WIDTH, self.height))
        self.theme = self.drawing.theme
        self.drawing.set_label(visible(title))
        self.axes = self.drawing.add_plot((0.0, 0.0, 1.0, 1.0))
        self.axes.set_axis_off()
        self.axes.set_xlim(0, WIDTH)
        self.axes.set_ylim(self.height - self.top, -self.top)
        for index, line in enumerate(lines):
            y = LINE * (index + 0.5) + MARGIN - self.top
            self.fit(MARGIN, y, line, WIDTH - 2 * MARGIN, size=10.0)

    def write(
        self,
        x: float,
        y: float,
        text: str,
        *,
        size: float = BODY,
        side: str = "left",
        colour: str = "",
        **more: Any,
    ) -> Text:
        """Write text centred at height y; `side` is the alignment at x."""
        look: dict[str, Any] = {
            "ha": side,
            "va": "center_baseline",
            "fontsize": size,
            "parse_math": False,
            **more,
        }
        return self.axes.text(x, y, visible(text), color=colour or self.theme.ink, **look)

    def hint(self, x: float, y: float, text: str, *, side: str = "left") -> Text:
        """Write small text that stands back, such as the head of a column."""
        return self.write(x, y, text, size=SMALL, side=side, colour=self.theme.soft)

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
        self.axes.box(
            (x, y - height / 2),
            (width, height),
            tooltip=tooltip,
            facecolor=self.theme.of(bound),
            edgecolor=self.theme.paper,
            linewidth=0,
            hatch=HATCHES.get(bound or ""),
        )

    def line(self, xs: tuple[float, float], y: float, colour: str, width: float = 1.0) -> None:
        """Draw a thin horizontal line."""
        self.axes.plot(xs, (y, y), color=colour, linewidth=width, solid_capstyle="butt")

    def dot(self, x: float, y: float, bound: str) -> None:
        """Draw the mark of a bound, the same as on the roofline."""
        self.axes.mark((x, y), self.theme.of(bound), marker=MARKERS[bound], markersize=4.5)


def decimals(largest: float) -> int:
    """The number of decimals with which a column's largest number has three or four digits."""
    return 1 if largest >= 100 else 2 if largest >= 10 else 3
