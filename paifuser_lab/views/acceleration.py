"""The switches of an accelerated loop: how much faster each makes a step, why it is on or off."""

from __future__ import annotations

from ..records import AccelerationStatus, SwitchStatus
from ..records.quality import readable_interval
from .picture import Axis, Boxes, Dots, Key, Labels, Panel, Picture, Rules, Shape, Spoken

ROW = 28  # pixels of a switch
NARROWEST = 1.25  # the axis reaches at least this ratio and its inverse
TICKS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0)
TONES = {"on": "good", "taken back": "bad", "judging": "main"}
SHAPES: dict[str, Shape] = {
    "on": "disc", "judging": "diamond", "waiting": "ring", "taken back": "cross",
    "not offered": "tick",
}  # fmt: skip


def picture(status: AccelerationStatus) -> Picture:
    """A row a switch: its state, and a bar from 1 × to its speed-up with the interval."""
    states = list(dict.fromkeys(row.state for row in status.rows))
    table = status.as_table("switches").without("why")
    return Picture(
        title=status.title,
        label="how many times faster a step is with each switch",
        rows=((_panel(status.rows),),) if status.rows else (),
        legend=tuple(Key(_tone(state), state, SHAPES[state]) for state in states),
        items=tuple((row.name, row.why) for row in status.rows if row.why),
        items_name="why each switch is on or off",
        tables=(table,) if table.rows else (),
        spoken=_spoken(status),
        note=" · ".join(status.captions[1:]),
    )


def _panel(rows: tuple[SwitchStatus, ...]) -> Panel:
    x = _axis(rows)
    judged = [
        (index, row.ratio, row.interval, _tone(row.state))
        for index, row in enumerate(rows)
        if row.ratio is not None and row.interval is not None
    ]
    at, ends = [row for row, *_ in judged], [ratio for _, ratio, _, _ in judged]
    tones = [tone for *_, tone in judged]
    marks = (
        Rules("x", [1.0], tone="ink"),
        Boxes.in_rows(
            [min(1.0, ratio) for ratio in ends],
            [max(1.0, ratio) for ratio in ends],
            at,
            tone=tones,
        ),
        Boxes.in_rows(
            [max(x.low, low) for _, _, (low, _), _ in judged],
            [high for _, _, (_, high), _ in judged],
            at,
            half=0.05,
            tone="ink",
        ),
        Labels(
            [max(1.0, high) for _, _, (_, high), _ in judged],
            at,
            [f"{ratio:.2f} × ({readable_interval(interval)})" for _, ratio, interval, _ in judged],
            tone="ink",
        ),
        Dots(
            [x.low**0.9] * len(rows),
            list(range(len(rows))),
            [SHAPES[row.state] for row in rows],
            7.0,
            tone=[_tone(row.state) for row in rows],
        ),
    )
    return Panel(x, Axis.band([row.name for row in rows]), marks, 46 + ROW * len(rows))


def _axis(rows: tuple[SwitchStatus, ...]) -> Axis:
    """From 1 as far to both sides as the intervals need; factors are equally far apart."""
    values = [value for row in rows for value in (row.ratio, *(row.interval or ())) if value]
    most = max([NARROWEST, *(max(value, 1 / value) for value in values)])
    shown = [tick for tick in TICKS if 1 / most <= tick <= most]
    ticks = shown if len(shown) > 1 else [0.8, 1.0, 1.25]
    names = [f"{tick:g} ×" for tick in ticks]
    # labels stand to the right of the bars
    return Axis(most**-1.3, most**1.8, "a step is so many times faster", "log", ticks, names)


def _tone(state: str) -> str:
    return TONES.get(state, "soft")


def _spoken(status: AccelerationStatus) -> Spoken:
    """The state in a sentence, said at once where a switch has changed."""
    judging = [row.name for row in status.rows if row.state == "judging"]
    on = ", ".join(status.on) or "nothing"
    line = f"Step {status.steps}: on {on}" + (f"; judging {', '.join(judging)}" if judging else "")
    if not status.is_enabled:
        line = f"Acceleration ended after step {status.steps} with {on} on"
    return Spoken(line, " ".join([str(status.is_enabled), *(row.state for row in status.rows)]))
