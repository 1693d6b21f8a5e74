"""A picture of a record as data: panels with axes and marks, drawn by matplotlib (`canvas.py`) and
by the page (`widgets/shared/picture.js`) alike. Domains, ticks and texts are decided here, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

from ..records.table import Table
from ..records.text import readable_bytes, readable_rate, three_figures

Column = Sequence[float]
Texts = Sequence[str]
Readable = Callable[[float], str]
Side = Literal["left", "right", "middle"]
Style = Literal["solid", "dashed", "dotted"]
Shape = Literal["disc", "ring", "cross", "up", "down", "square", "diamond", "plus", "tick"]


def in_bytes(value: float) -> str:
    """A size as text."""
    return readable_bytes(round(value))


# By the name that the page knows as well.
FORMATS: dict[str, Readable] = {
    "bytes": in_bytes,
    "rate": readable_rate,
    "count": "{:.0f}".format,
    "digits": three_figures,
}
LETTERS = 11  # pixels of the font of names
WIDEST_NAME = 36  # characters
NARROWEST_PAGE, BEHIND = 560, 16  # pixels: in which a text has room, so far behind its bar
NARROW, BROAD = frozenset("iljtfrI.,:;|!'()[]{} ·"), frozenset("mwMWQGO@%—…")


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
    def linear(
        cls, low: float, high: float, label: str = "", readable: str = "digits", most: int = 5
    ) -> Axis:
        """Ticks are round values, a step of 1, 2 or 5 apart."""
        ticks = linear_ticks(low, high, most)
        return cls(low, high, label, "linear", ticks, tuple(map(FORMATS[readable], ticks)))

    @classmethod
    def beside(
        cls, ends: Column, texts: Texts, names: Texts, label: str, readable: str = "digits"
    ) -> Axis:
        """From 0 to where, in a page of least width, each bar has room for the text behind it."""
        named = max(text_width(name[:WIDEST_NAME]) for name in names)
        wide = NARROWEST_PAGE - min(named, 0.4 * NARROWEST_PAGE)
        rooms = [max(wide - text_width(text) - BEHIND, 0.2 * wide) for text in texts]
        most = max(end * wide / room for end, room in zip(ends, rooms, strict=True))
        return cls.linear(0, most, label, readable)

    @classmethod
    def log(
        cls,
        low: float,
        high: float,
        label: str = "",
        readable: str = "digits",
        ticks: Column = (),
        most: int = 5,
    ) -> Axis:
        """Ticks are powers of ten, with 2 and 5 between them if they are few."""
        ticks = ticks or log_ticks(low, high, most)
        return cls(low, high, label, "log", ticks, tuple(map(FORMATS[readable], ticks)))

    @classmethod
    def band(cls, names: Texts) -> Axis:
        """A row for each name."""
        ticks = tuple(range(len(names)))
        return cls(-0.5, max(len(names), 1) - 0.5, "", "band", ticks, tuple(names))

    def share(self, value: float) -> float:
        """Where a value stands: 0 at the low end, 1 at the high one."""
        low, high = self.low, self.high
        if self.kind == "log":
            low, high, value = math.log(low), math.log(high), math.log(value)
        return (value - low) / ((high - low) or 1.0)


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
    """A tooltip for each row: a heading, a line under it, and figures with their names. A heading
    of values is their name and the value, as in "step 5".
    """

    heading: Texts | Values
    line: Texts = ()
    figures: tuple[Values, ...] = ()

    def text(self, index: int) -> str:
        """The tooltip of a row, a line for each of its parts."""
        figures = ((column.text(index), column.name) for column in self.figures)
        lines = [self._title(index), self.line[index] if self.line else ""]
        lines += [f"{text} {name}".strip() for text, name in figures if text]
        return "\n".join(filter(None, lines))

    def _title(self, index: int) -> str:
        if isinstance(self.heading, Values):
            return f"{self.heading.name} {self.heading.text(index)}"
        return self.heading[index]


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
    is_tint: bool = False  # so light that lines are seen on it

    @classmethod
    def in_rows(
        cls,
        starts: Column,
        ends: Column,
        rows: Column | None = None,
        *,
        half: float = 0.3,
        **look: Any,
    ) -> Boxes:
        """Bars in the rows of a band, in each row one; `half` of their height to both sides."""
        at = range(len(starts)) if rows is None else rows
        return cls(starts, ends, [row - half for row in at], [row + half for row in at], **look)


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
    is_tint: bool = False  # so light that what lies under it is seen


@dataclass(frozen=True)
class Heat(Mark):
    """Cells between edges, column by column from the lowest; shades are 1 to 9, 0 is no cell."""

    x: Column
    y: Column
    shades: bytes


@dataclass(frozen=True)
class Dots(Mark):
    """Points in shapes that tell what they are without colours; without a place there is none."""

    x: Column
    y: Column
    shape: Shape | Sequence[Shape] = "disc"
    size: float | Column = 6.0
    reach: Column = ()  # up to where a line is drawn from the one that is pointed at


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
    """Texts beside points; the tone "on-heat-3" is readable on the shade of "heat-3"."""

    x: Column
    y: Column
    texts: Texts
    side: Side = "right"
    lift: float = 0.0  # upwards from the point, in pixels
    is_bold: bool = False


@dataclass(frozen=True)
class Names(Mark):
    """Texts with a line to their points, so many pixels from them; none in a narrow panel."""

    x: Column
    y: Column
    texts: Texts
    across: Column
    up: Column


@dataclass(frozen=True)
class Handle:
    """A line across a panel that is moved up and down from stop to stop, the highest first."""

    at: Column
    figures: tuple[Values, ...]  # of each stop: what it is, and more about it
    boxes: Column = ()  # at each stop, how many of the first boxes have the first tone
    start: int = 0
    tones: tuple[str, str] = ("main", "faint")
    tone: str = "memory"


@dataclass(frozen=True)
class Panel:
    """Two axes and the marks between them."""

    x: Axis
    y: Axis
    marks: tuple[Mark, ...]
    height: int = 170  # in pixels of the page
    handle: Handle | None = None

    @classmethod
    def bars(
        cls,
        names: Texts,
        lengths: Column,
        texts: Texts,
        across: Axis,
        height: int,
        spans: Sequence[tuple[float, float]] = (),
        **look: Any,
    ) -> Panel:
        """A bar from 0 for each name, with a thin line over its span and a text behind both."""
        ends, thin = [*lengths], list[Mark]()
        if spans:
            ends = [max(length, high) for length, (_, high) in zip(lengths, spans, strict=True)]
            thin = [Boxes.in_rows(*zip(*spans, strict=True), half=0.05, tone="ink")]
        bars = Boxes.in_rows([0.0] * len(names), lengths, **look)
        labels = Labels(ends, range(len(names)), texts, tone="ink")
        return cls(across, Axis.band(names), (bars, *thin, labels), height)


@dataclass(frozen=True)
class Cursor:
    """A position that is moved along the x axes, and what is there."""

    at: Column
    tips: Tips
    start: int = 0  # what is described until another is pointed at


@dataclass(frozen=True)
class Fact:
    """A figure above the panels, with the shape of the dots that it counts."""

    value: str
    name: str
    shape: Shape | Literal[""] = ""


class Key(NamedTuple):
    """A tone of the legend, with the shape of its dots; a press takes what has tooltips away."""

    tone: str
    name: str
    shape: Shape | Literal[""] = ""


@dataclass(frozen=True)
class Spoken:
    """A line about what still runs; who listens is told at once if its news are other ones."""

    line: str
    news: str


@dataclass(frozen=True)
class Picture:
    """Panels in rows, with the texts around them."""

    title: str
    label: str  # what a pointer or keys go through
    rows: tuple[tuple[Panel, ...], ...]
    sentence: str = ""
    note: str = ""
    legend: tuple[Key | tuple[str, str], ...] = ()
    facts: tuple[Fact, ...] = ()
    spoken: Spoken | None = None
    photo: bytes = b""  # a JPEG beside the panels
    items: tuple[tuple[str, str], ...] = ()  # a list below: what, and what about it
    items_name: str = ""
    tables: tuple[Table, ...] = ()
    cursor: Cursor | None = None
    below: tuple[Picture, ...] = ()  # each with keys of its own
    by_layer: tuple[
        tuple[str, Picture], ...
    ] = ()  # one is shown: the selected layer's or the first
    choice: str = ""  # what of the layer `by_layer` shows

    @property
    def panels(self) -> tuple[Panel, ...]:
        """All panels, row by row."""
        own = tuple(panel for row in self.rows for panel in row)
        return own + tuple(panel for picture in self.others for panel in picture.panels)

    @property
    def others(self) -> tuple[Picture, ...]:
        """What is drawn under it where no layer is selected."""
        return (*self.below, *(picture for _, picture in self.by_layer[:1]))


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
    """Powers of ten, thinned if there are many, with 2 and 5 between them if there are few;
    even steps where that leaves less than two.
    """
    powers = range(math.floor(math.log10(low)), math.ceil(math.log10(high)) + 1)
    fine = [tidy(factor * 10.0**power) for power in powers for factor in (1, 2, 5)]
    shown = [tick for tick in fine if low * (1 - 1e-9) <= tick <= high * (1 + 1e-9)]
    if len(shown) < 2:
        return linear_ticks(low, high, most)  # between two of them: the scale is nearly even there
    if len(shown) <= most:
        return tuple(shown)
    whole = [tick for tick in shown if math.log10(tick).is_integer()] or shown
    return tuple(whole[:: max(1, math.ceil(len(whole) / most))])


def text_width(text: str) -> float:
    """About how many pixels a text takes, rather a little more."""
    units = 0.0
    for letter in text:
        is_broad = letter in BROAD or letter > "\u2e80"
        wide = 0.95 if is_broad else 0.7 if letter.isupper() else 0.58
        units += 0.34 if letter in NARROW else wide
    return units * LETTERS


def tidy(value: float) -> float:
    """0.30000000000000004 → 0.3."""
    return float(f"{value:.12g}")
