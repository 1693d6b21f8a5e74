"""The latency of a layer by its numbers of channels."""

from __future__ import annotations

from ..records import Staircase
from .picture import Axis, Dots, Line, Panel, Picture, Tips, Values

MOST_TICKS = 9


def picture(record: Staircase) -> Picture:
    """A panel per side; a width that was not measured has the next wider one's latency."""
    top = 1.12 * max(*record.by_made, *record.by_read)
    made = _panel("channels made", record.makes, record.by_made, record.worth_making, top)
    read = _panel("channels read", record.reads, record.by_read, record.worth_reading, top)
    return Picture(
        record.title,
        "latency by numbers of channels",
        ((made, read) if len(record.reads) > 1 else (made,),),
        sentence="A ring: the most channels before a rise.",
    )


def _panel(
    label: str, widths: tuple[int, ...], ms: tuple[float, ...], worth: tuple[int, ...], top: float
) -> Panel:
    ticks = worth if len(worth) <= MOST_TICKS else widths
    across = Axis(0, 1.06 * widths[-1], label, "linear", ticks, tuple(map(str, ticks)))
    ms_of = dict(zip(widths, ms, strict=True))
    tips = Tips([f"{width} {label}" for width in widths], figures=(Values("ms", ms, "digits"),))
    marks = (
        # from the widest: a step begins at a measured width and goes on to the next narrower one
        Line(widths[::-1], ms[::-1], is_stepped=True),
        Dots(widths, ms, size=4.0, tips=tips),
        Dots(worth, [ms_of[width] for width in worth], "ring", 9.0, tone="good"),
    )
    return Panel(across, Axis.linear(0, top, "ms"), marks, 200)
