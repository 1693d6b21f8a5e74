"""A picture of a record as data: panels with axes and marks, drawn by matplotlib (`canvas.py`) and
by the page (`widgets/shared/picture.js`) alike. Domains, ticks and texts are decided here, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

from ..records.text import readable_bytes, readable_rate

Column = Sequence[float]
Texts = Sequence[str]
Readable = Callable[[float], str]
Side = Literal["left", "right"]
Style = Literal["solid", "dashed", "dotted"]


def in_bytes(value: float) -> str:
    """A size as text."""
    return readable_bytes(round(value))


# By the name that the page knows as well.
FORMATS: dict[str, Readable] = {
    "bytes": in_bytes,
    "rate": readable_rate,
    "count": "{:.0f}".format,
    "digits": "{:.3g}".format,
}


@dataclass(frozen=True)
class Axis:
    """From where to where, on which scale, with its ticks; the first of a band stands at 0."""

    low: float
    high: float
    label: str = ""
    kind: Literal["linear", "log", "band"] = "linear"
    ticks: Column = ()
    names: Texts = ()

    @classmethod
    def linear(cls, low: float, high: float, label: str = "", readable: str = "digits") -> Axis:
        """Ticks are round values, a step of 1, 2 or 5 apart."""
        ticks = linear_ticks(low, high)
        return cls(low, high, label, "linear", ticks, tuple(map(FORMATS[readable], ticks)))

    @classmethod
    def log(
        cls, low: float, high: float, label: str = "", readable: str = "digits", ticks: Column = ()
    ) -> Axis:
        """Ticks are powers of ten, with 2 and 5 between them if they are few."""
        ticks = ticks or log_ticks(low, high)
        return cls(low, high, label, "log", ticks, tuple(map(FORMATS[readable], ticks)))

    @classmethod
    def band(cls, names: Texts) -> Axis:
        """A row for each name."""
        ticks = tuple(range(len(names)))
        return cls(-0.5, max(len(names), 1) - 0.5, "", "band", ticks, tuple(names))


@dataclass(frozen=True)
class Values:
    """A column of figures in a tooltip; without a format they are texts."""

    name: str
    values: Column | Texts
    readable: str = ""

    def text(self, index: int) -> str:
        """The figure of a row; '' if it is not known."""
        value = self.values[index]
        if isinstance(value, str):
            return value
        return "" if math.isnan(value) else FORMATS[self.readable](value)


@dataclass(frozen=True)
class Tips:
    """A tooltip for each row: a heading, a line under it, and figures with their names."""

    heading: Texts
    line: Texts = ()
    figures: tuple[Values, ...] = ()

    def text(self, index: int) -> str:
        """The tooltip of a row, a line for each of its parts."""
        figures = ((column.text(index), column.name) for column in self.figures)
        lines = [self.heading[index], self.line[index] if self.line else ""]
        lines += [f"{text} {name}".strip() for text, name in figures if text]
        return "\n".join(filter(None, lines))


@dataclass(frozen=True, kw_only=True)
class Mark:
    """What is drawn; a tone is a colour of the theme, of all rows or of each."""

    tone: str | Texts = "main"
    style: Style = "solid"
    key: Texts = ()  # the layer of each row, which a click selects
    tips: Tips | None = None


@dataclass(frozen=True)
class Boxes(Mark):
    """Rectangles."""

    x: Column
    x2: Column
    y: Column
    y2: Column
    is_hollow: bool = False


@dataclass(frozen=True)
class Line(Mark):
    """A line through points, or steps that begin at them; NaN breaks it."""

    x: Column
    y: Column
    is_stepped: bool = False
    width: float = 1.6


@dataclass(frozen=True)
class Area(Mark):
    """What lies between two lines, in steps that begin at the points."""

    x: Column
    low: Column
    high: Column


@dataclass(frozen=True)
class Dots(Mark):
    """Points, each in a shape that tells what it is without colours."""

    x: Column
    y: Column
    shape: Literal["disc", "ring", "cross", "up", "down", "square", "plus", "tick"] = "disc"
    size: float = 6.0


@dataclass(frozen=True)
class Rules(Mark):
    """Lines across the panel at values of an axis, named at one of their ends."""

    axis: Literal["x", "y"]
    at: Column
    names: Texts = ()
    side: Side = "left"
    is_below: bool = False  # the name: of its line, or a line lower beside it


@dataclass(frozen=True)
class Labels(Mark):
    """Texts beside points."""

    x: Column
    y: Column
    texts: Texts
    side: Side = "right"
    lift: float = 0.0  # upwards from the point, in pixels
    is_bold: bool = False


@dataclass(frozen=True)
class Panel:
    """Two axes and the marks between them."""

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    height: int = 170  # in pixels of the page


@dataclass(frozen=True)
class Cursor:
    """A position that is moved along the x axes, and what is there."""

    at: Column
    tips: Tips
    start: int = 0  # what is described until another is pointed at


@dataclass(frozen=True)
class Sheet:
    """A table of texts; `words` names its columns that are no figures."""

    caption: str
    rows: Sequence[dict[str, str]]
    words: Texts = ()


@dataclass(frozen=True)
class Picture:
    """Panels in rows, with the texts around them."""

    title: str
    label: str  # what a pointer or keys go through
    rows: tuple[tuple[Panel, ...], ...]
    sentence: str = ""
    note: str = ""
    legend: tuple[tuple[str, str], ...] = ()  # tone and name
    items: tuple[tuple[str, str], ...] = ()  # a list below: what, and what about it
    tables: tuple[Sheet, ...] = ()
    cursor: Cursor | None = None
    below: tuple[Picture, ...] = ()  # each with keys of its own

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, row by row."""
        own = tuple(panel for row in self.rows for panel in row)
        return own + tuple(panel for picture in self.below for panel in picture.panels)


def linear_ticks(low: float, high: float, most: int = 5) -> tuple[float, ...]:
    """Round values from low to high, a step of 1, 2 or 5 apart."""
    if not high > low:
        return (low,)
    least = (high - low) / most
    power = 10.0 ** math.floor(math.log10(least))
    step = next(factor * power for factor in (1, 2, 5, 10) if factor * power >= least * (1 - 1e-9))
    first, last = math.ceil(low / step - 1e-9), math.floor(high / step + 1e-9)
    return tuple(tidy(index * step) for index in range(first, last + 1))


def log_ticks(low: float, high: float, most: int = 5) -> tuple[float, ...]:
    """Powers of ten, thinned if there are many, with 2 and 5 between them if there are few."""
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [tidy(factor * 10.0**power) for power in powers for factor in (1, 2, 5)]
    shown = [tick for tick in fine if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    if len(shown) <= most:
        return tuple(shown)
    whole = [tick for tick in shown if math.log10(tick).is_integer()] or shown
    return tuple(whole[:: max(1, math.ceil(len(whole) / most))])


def tidy(value: float) -> float:
    """0.30000000000000004 → 0.3."""
    return float(f"{value:.12g}")
