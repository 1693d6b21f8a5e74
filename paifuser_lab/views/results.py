"""Everything tried in a session: a bar per row, and accuracy against latency."""

from __future__ import annotations

import math

from ..records import ResultRow, Results, counted
from ..records.text import readable_ms
from .label_room import Room, offsets
from .picture import Axis, Dots, Line, Names, Panel, Picture, Tips, linear_ticks

MAX_WORDS = 64  # characters beside a bar
ROW = 30  # pixels of a bar with the gap to the next
WIDE, HIGH, FRAME = 420, 260, 60  # of the scatter plot, in pixels of a narrow page; its axes
LEAST_SPAN = 0.01  # of the worth, so that rounding does not look like a difference


def picture(results: Results) -> Picture:
    """The bars; below them the scatter plot."""
    points = scatter(results)
    rows = ((_bars(results),), *points.rows) if results.rows else ()
    return Picture(results.title, "everything tried", rows)


def scatter(results: Results) -> Picture:
    """Latency and worth of what is within its limit; the best is at the top on the left."""
    known = [
        (row, worth)
        for row in results.measured
        if row.is_within_limit and (worth := results.worth(row)) is not None
    ]
    label = f"{counted(len(known), 'result')}; arrow keys go through them, Enter marks one"
    if not known:
        return Picture("", label, ())
    unit = results.trade_off.unit
    return Picture("", label, ((_scatter(results, known, unit),),))


def _scatter(results: Results, known: list[tuple[ResultRow, float]], unit: str) -> Panel:
    rows, ys = [row for row, _ in known], [worth for _, worth in known]
    xs = [row.latency_ms or 0.0 for row in rows]
    ranges = [row.likely_ms or (ms, ms) for row, ms in zip(rows, xs, strict=True)]
    x = Axis.log(min([*xs, *(low for low, _ in ranges)]) / 1.25,
                 max([*xs, *(high for _, high in ranges)]) * 1.25, "latency, ms")  # fmt: skip
    is_less_better = results.has_metric and results.smaller_is_better  # the best stands on top
    top = max(ys)
    low = min([*ys, top - LEAST_SPAN])
    pad = 0.12 * (top - low)
    ticks = linear_ticks(low, top, 4)
    texts = tuple(f"{100 * tick:.3g} %" if results.is_share else f"{tick:.4g}" for tick in ticks)
    name = "closeness (1 − output error)" if unit == "closeness" else unit
    ends = (low - pad, top + pad)
    y = Axis(*(ends[::-1] if is_less_better else ends), name, "linear", ticks, texts)
    place = {row.number: (at, worth) for row, at, worth in zip(rows, xs, ys, strict=True)}
    best = [place[number] for number in results.frontier]
    line = [*best, (x.high, best[-1][1])] if best else []
    doubts = [(at, worth) for (a, b), worth in zip(ranges, ys, strict=True)
              for at, worth in ((a, worth), (b, worth), (b, math.nan))]  # fmt: skip
    pixels = [(WIDE * x.share(at), (HIGH - FRAME) * y.share(worth))
              for at, worth in place.values()]  # fmt: skip
    numbers = [str(row.number) for row in rows]
    across, up = offsets(Room((WIDE, HIGH - FRAME), [], [], pixels), numbers, pixels)
    tones = [_tone(row) for row in rows]
    marks = (
        Line([at for at, _ in line], [worth for _, worth in line], is_stepped=True, width=1.2,
             tone="faint"),
        Line([at for at, _ in doubts], [worth for _, worth in doubts], width=2.0, tone="faint"),
        Names(xs, ys, numbers, across, up, tone="ink"),
        Dots(
            xs,
            ys,
            ["ring" if tone == "soft" else "disc" for tone in tones],
            [9.0 if row.number == results.current else 7.0 for row in rows],
            tone=tones,
            key=numbers,
            tips=Tips([f"{row.number}. {row.label}" for row in rows],
                      [row.verdict.sentence for row in rows]),
        ),
    )  # fmt: skip
    return Panel(x, y, marks, HIGH)


def _bars(results: Results) -> Panel:
    rows = results.rows
    latencies = [row.latency_ms or 0.0 for row in rows]
    likely = [row.likely_ms or (ms, ms) for row, ms in zip(rows, latencies, strict=True)]
    ends = [max(ms, high) for ms, (_, high) in zip(latencies, likely, strict=True)]
    names = [f"{row.number}. {results.short_label(row)}" for row in rows]
    texts, tones = [_words(row) for row in rows], [_tone(row) for row in rows]
    across = Axis.linear(0, 2.0 * max([*ends, 1e-6]), "latency, ms (line: likely range)")
    return Panel.bars(names, latencies, texts, across, 50 + ROW * len(rows), likely, tone=tones)


def _tone(row: ResultRow) -> str:
    is_told = not row.refused and row.verdict.tone in ("good", "bad") and row.number > 0
    return row.verdict.tone if is_told else "soft"


def _words(row: ResultRow) -> str:
    if row.failure or row.refused:
        return _first_clause(row.failure or f"refused: {row.refused}")
    is_first = row.number == 0 and row.latency_ms
    return f"{readable_ms(row.latency_ms)} ms" if is_first else row.verdict.sentence


def _first_clause(text: str) -> str:
    """The beginning of a reason that can stand alone; the table has all of it."""
    clause = text.partition("; ")[0].partition(", ")[0]
    if len(clause) <= MAX_WORDS:
        return clause
    return f"{clause[:MAX_WORDS].rpartition(' ')[0]} …"
