"""Two profiles layer by layer: which layers became faster, and whether the prediction held."""

from __future__ import annotations

from ..records import LayerPair, SideBySide, counted
from ..records.text import in_figures, three_figures
from .picture import Axis, Boxes, Dots, Key, Labels, Panel, Picture, Tips

MAX_LAYERS = 20
ROW = 22  # pixels


def picture(pair: SideBySide) -> Picture:
    """A row per layer that changed: a ring at the time before, a dot at that after."""
    rows = [row for row in pair.largest if row.saved_ms][:MAX_LAYERS]
    left = [row for row in pair.rows if row not in rows]
    before, after = (sum(getattr(row, f"{when}_ms") or 0.0 for row in left)
                     for when in ("before", "after"))  # fmt: skip
    rest = (
        f"{counted(len(left), 'more layer')}, together {three_figures(before)} → "
        f"{three_figures(after)} ms"
        if left
        else ""
    )
    return Picture(
        title=pair.title,
        label="layers that changed most",
        sentence=" · ".join(filter(None, (pair.promise, pair.error_growth))),
        rows=((_panel(pair, rows),),) if rows else (),
        note=rest if rows else "No layer's time changed.",
        legend=(Key("good", "faster", "disc"), Key("bad", "slower", "disc"),
                Key("soft", "before", "ring")),
        tables=(pair.as_table("by layer"),),
    )  # fmt: skip


def _panel(pair: SideBySide, rows: list[LayerPair]) -> Panel:
    ends = [(row.before_ms or 0.0, row.after_ms or 0.0) for row in rows]
    tones = ["good" if row.saved_ms > 0 else "bad" for row in rows]
    was = [(ms, index) for index, row in enumerate(rows) if (ms := row.before_ms) is not None]
    now = [(ms, index) for index, row in enumerate(rows) if (ms := row.after_ms) is not None]
    names = [row.layer or f"{pair.before} (itself)" for row in rows]
    marks = (
        Boxes.in_rows(
            [min(two) for two in ends],
            [max(two) for two in ends],
            half=0.07,
            tone=tones,
            key=[row.layer for row in rows],
            tips=Tips(names, [_took(row) for row in rows]),
        ),
        Dots([ms for ms, _ in was], [index for _, index in was], "ring", 7.0, tone="soft"),
        Dots([ms for ms, _ in now], [index for _, index in now], "disc", 7.0,
             tone=[tones[index] for _, index in now]),
        Labels([max(two) for two in ends], range(len(rows)), [_change(row) for row in rows],
               tone=tones),
    )  # fmt: skip
    across = Axis.linear(0, 1.15 * max(map(max, ends)), "self time, ms")
    return Panel(across, Axis.band(names), marks, 46 + ROW * len(rows))


def _took(row: LayerPair) -> str:
    kinds = " → ".join(dict.fromkeys(kind for kind in (row.kind_before, row.kind_after) if kind))
    took = " → ".join(
        "not there" if ms is None else f"{in_figures(ms, 4)} ms"
        for ms in (row.before_ms, row.after_ms)
    )
    return " · ".join(filter(None, (kinds, took, row.note)))


def _change(row: LayerPair) -> str:
    """−3.2 saves, +0.4 costs."""
    return f"{'−' if row.saved_ms > 0 else '+'}{three_figures(abs(row.saved_ms))} ms"
