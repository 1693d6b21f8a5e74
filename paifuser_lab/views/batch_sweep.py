"""Throughput, latency and memory by batch size; latency by throughput of dynamic batching."""

from __future__ import annotations

import math

from ..records import BatchingCurve, BatchRow, BatchSweep, readable_bytes
from ..records.text import readable_rate
from .picture import (
    Axis,
    Column,
    Cursor,
    Dots,
    Key,
    Labels,
    Line,
    Mark,
    Panel,
    Picture,
    Rules,
    Shape,
    Side,
    Tips,
    Values,
)

TONES = ("soft", "main", "good", "memory", "overhead", "bad")
SHAPES: tuple[Shape, ...] = ("disc", "square", "up", "diamond", "down", "plus")


def picture(sweep: BatchSweep) -> Picture:
    """Throughput above, latency and memory below it."""
    ran = sweep.ran
    batches = [row.batch for row in ran]
    latency = _cost(sweep, "latency, ms", "rate", [row.latency_ms or math.nan for row in ran])
    memory = _cost(sweep, "memory", "bytes", [row.peak_bytes or math.nan for row in ran])
    return Picture(
        title=sweep.title,
        label="batch size",
        sentence=sweep.reason,
        rows=((_throughput(sweep),), (latency, memory)) if ran else (),
        items=tuple((f"batch {row.batch}", row.failure) for row in sweep.rows if row.failure),
        cursor=Cursor(batches, _tips(sweep), batches.index(sweep.knee)),
    )


def _throughput(sweep: BatchSweep) -> Panel:
    batches = [row.batch for row in sweep.ran]
    rates = [row.throughput_per_s or 0.0 for row in sweep.ran]
    best, knee = sweep.best.throughput_per_s or 0.0, sweep[sweep.knee]
    at_knee = knee.throughput_per_s or 0.0
    # names stand on the side where the knee is not
    is_right = knee.batch**2 > sweep.rows[0].batch * sweep.rows[-1].batch
    free: Side = "left" if is_right else "right"
    name = f"batch {knee.batch} · {readable_rate(at_knee)} a second"
    marks: tuple[Mark, ...] = (
        Rules("y", [sweep.plateau * best], [f"{sweep.plateau:.0%} of the best"], free,
              not is_right, tone="soft", style="dashed"),
        Line(batches, rates),
        Dots(batches, rates, size=5),
        Line([knee.batch] * 2, [0, at_knee], tone="good", style="dotted", width=1.2),
        Dots([knee.batch], [at_knee], "ring", 12, tone="good"),
        Labels([knee.batch], [0], [name], free, 9, is_bold=True, tone="ink"),
    )  # fmt: skip
    top = 1.15 * max([*rates, 1e-9])
    return Panel(_batches(sweep), Axis.linear(0, top, "examples a second", "rate"), marks, 240)


def _cost(sweep: BatchSweep, name: str, readable: str, values: Column) -> Panel:
    """Latency or memory on a logarithmic scale; memory with the limit and what it refused."""
    batches = [row.batch for row in sweep.ran]
    shown = [value for value in values if value > 0]
    marks: list[Mark] = [Line(batches, values), Dots(batches, values, size=4)]
    knee = batches.index(sweep.knee)
    marks.append(Dots([sweep.knee], [values[knee]], "ring", 9, tone="good"))
    if readable == "bytes":
        limit, refused = sweep.memory_limit_bytes, [row for row in sweep.rows if _needed(row)]
        needed = [_needed(row) for row in refused]
        rule = Rules("y", [limit], [f"limit {readable_bytes(limit)}"], tone="bad")
        marks += [rule] if limit > 0 else []
        marks.append(Dots([row.batch for row in refused], needed, "cross", 6, tone="bad"))
        shown += [size for size in [limit, *needed] if size > 0]
    axis = Axis.log(min(shown, default=1) / 1.6, 2.2 * max(shown, default=10), name, readable)
    return Panel(_batches(sweep), axis, tuple(marks), 170)


def _needed(row: BatchRow) -> int:
    """What a batch that did not run would have needed; 0 if it ran."""
    return row.predicted_bytes or 0 if row.failure else 0


def _batches(sweep: BatchSweep) -> Axis:
    """Powers of two are written."""
    batches = [row.batch for row in sweep.rows]
    powers = [batch for batch in batches if batch & (batch - 1) == 0] or [sweep.knee]
    return Axis.log(
        min(batches) / 1.25, max(batches) * 1.25, "batch size", "count", ticks=tuple(powers)
    )


def _tips(sweep: BatchSweep) -> Tips:
    """What is known of each batch that ran."""
    table = {row["batch"]: row for row in sweep.table()}
    rows = [table[str(row.batch)] for row in sweep.ran]

    def texts(column: str) -> list[str]:
        return [text if (text := row.get(column, "")) != "–" else "" for row in rows]

    figures = {
        "a second": texts("per second"),
        "ms": texts("latency ms"),
        "ms, middle half": texts("middle half"),
        "memory": texts("memory"),
        "utilised": texts("utilisation"),
        "timed in turn": ["✓" if text else "" for text in texts("in turn")],
    }
    names = [f"batch {row['batch']}" for row in rows]
    return Tips(names, texts("note"), tuple(Values(name, of) for name, of in figures.items()))


def picture_of_batching(curve: BatchingCurve) -> Picture:
    """The median of each rule at each rate, and the 95th percentile above it, dashed."""
    marks: list[Mark] = []
    looks = []
    for index, (rule, points) in enumerate(curve.rules.items()):
        tone, shape = TONES[index % len(TONES)], SHAPES[index % len(SHAPES)]
        rates = [point.answered_per_s for point in points]
        medians = [point.p50_ms for point in points]
        tails = [point.p95_ms for point in points]
        marks += [
            Line(rates, tails, width=1.0, tone=tone, style="dashed"),
            Line(rates, medians, tone=tone),
            Dots(rates, medians, shape, tone=tone),
        ]
        looks.append(Key(tone, rule, shape))
    every = [point for points in curve.rules.values() for point in points]
    low, high = min(point.p50_ms for point in every), max(point.p95_ms for point in every)
    across = Axis.linear(0, 1.05 * max(point.answered_per_s for point in every),
                         "answered a second", "rate")  # fmt: skip
    up = Axis.log(low / 1.2, high * 1.2, "latency, ms: p50, p95 dashed")
    panel = Panel(across, up, tuple(marks), 260)
    return Picture(curve.title, "latency by throughput", ((panel,),), legend=tuple(looks))
