"""A baseline and its variants; metric against latency and size."""

from __future__ import annotations

from ..records import (
    Comparison,
    Measurement,
    TradeOff,
    counted,
    readable_bytes,
)
from ..records.quality import readable_interval, sign
from ..records.text import readable_ms, three_figures
from .picture import Axis, Dots, Labels, Line, Panel, Picture, Tips

ROW_HEIGHT = 34  # pixels of the page


def picture(comparison: Comparison) -> Picture:
    """A bar per timed row, the baseline first; shorter is faster."""
    rows = [row for row in comparison.rows if row.latency_ms is not None]
    notes = [(row.name, [note for note in row.notes if "than the baseline" not in note])
             for row in comparison.rows]  # fmt: skip
    note = (
        "latency: median and the middle half of the rounds; speed-up: against the baseline round "
        "by round, with its 95% interval"
    )
    return Picture(
        title=comparison.title,
        label=f"{counted(len(rows), 'row')}, the baseline first",
        rows=((_bars(comparison, rows),),) if rows else (),
        items=tuple((name, " · ".join(lines)) for name, lines in notes if lines),
        tables=(comparison.as_table("measurements"),),
        note=note,
    )


def _bars(comparison: Comparison, rows: list[Measurement]) -> Panel:
    latencies = [row.latency_ms or 0.0 for row in rows]
    spreads = [row.spread_ms or (ms, ms) for row, ms in zip(rows, latencies, strict=True)]
    tones = [_tone(row, comparison) for row in rows]
    ends = [max(ms, high) for ms, (_, high) in zip(latencies, spreads, strict=True)]
    names, texts = [row.name for row in rows], [_label(row, comparison) for row in rows]
    tips = Tips(names, [_figures(row, comparison) for row in rows])
    across = Axis.beside(ends, texts, names, "latency, ms")
    height = 46 + ROW_HEIGHT * len(rows)
    return Panel.bars(names, latencies, texts, across, height, spreads, tone=tones, tips=tips)


def _tone(row: Measurement, comparison: Comparison) -> str:
    verdict = comparison.verdict(row)
    if not verdict.word or verdict.tone == "untold" or row.name.startswith("baseline"):
        return "soft"
    return {"good": "good", "bad": "bad", "even": "main"}[verdict.tone]


def _figures(row: Measurement, comparison: Comparison) -> str:
    """What a table of every row has no room for."""
    calls = comparison.pays_after(row)
    parts = [
        counted(row.threads, "thread") if row.threads else "",
        f"best {readable_ms(row.best_ms)} ms" if row.best_ms else "",
        f"{readable_ms(row.cpu_ms)} ms of CPU time" if row.cpu_ms else "",
        f"built in {three_figures(row.build_s)} s" if row.build_s else "",
        f"pays after {counted(calls, 'call')}" if calls else "",
    ]
    return " · ".join(part for part in parts if part)


def _label(row: Measurement, comparison: Comparison) -> str:
    if row.name == comparison.baseline or row.speedup is None or row.speedup_interval is None:
        return f"{readable_ms(row.latency_ms)} ms"
    rough = sign(comparison.verdict(row).word, comparison.quality)
    likely = readable_interval(row.speedup_interval)
    return f"{readable_ms(row.latency_ms)} ms · {rough}{row.speedup:.2f} × ({likely})"


def picture_of_trade_off(trade_off: TradeOff) -> Picture:
    """Two plots of numbered variants, with their names in a list; up and left is better."""
    panels = (_side(trade_off, "latency_ms", "latency, ms"), _side(trade_off, "size_bytes", "size"))
    names = [(str(number), row.name) for number, row in enumerate(trade_off.bargains)]
    return Picture(trade_off.title, trade_off.unit, (panels,), items=tuple(names))


def _side(trade_off: TradeOff, axis: str, label: str) -> Panel:
    best, rows = trade_off.unbeaten(axis), trade_off.bargains
    xs, ys = [getattr(row, axis) for row in rows], [row.worth for row in rows]
    pad = 0.15 * (max(ys) - min(ys)) or 0.01
    unit = trade_off.unit
    lines = [
        f"{readable_ms(row.latency_ms)} ms, {readable_bytes(row.size_bytes)}, "
        f"{unit} {row.worth:.4f}"
        for row in rows
    ]
    marks = (
        Line([getattr(row, axis) for row in best], [row.worth for row in best], is_stepped=True),
        Labels(xs, ys, [str(number) for number in range(len(rows))], lift=6, tone="ink"),
        Dots(xs, ys, tone=["main" if row in best else "faint" for row in rows],
             tips=Tips([row.name for row in rows], lines)),
    )  # fmt: skip
    across = Axis.linear(0, 1.15 * max(xs), label, "bytes" if axis == "size_bytes" else "digits", 4)
    return Panel(across, Axis.linear(min(ys) - pad, max(ys) + pad, unit), marks, 250)
