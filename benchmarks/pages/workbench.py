"""Blocks about the workbench: panels in a browser, and verdicts on a busy machine."""

from __future__ import annotations

from paifuser_lab.bench.trust import LARGE, TrustBench

from ..widgets import WidgetRow, WidgetsBench
from .folder import Block, Records
from .text import paragraph, table


def widgets(records: Records) -> str:
    """A panel in a browser: creation, bytes, first paint, clicks."""
    measured = records.get("widgets", WidgetsBench)
    if measured is None or not measured.rows:
        return ""
    first, *others = measured.rows
    return paragraph(
        f"`python -m benchmarks widgets` on {measured.machine}, measured before the workbench had",
        f"its newest tabs: a panel of {first.rows:,} rows is",
        f"created in {first.create_ms:.1f} ms; its data, code and style are",
        f"{first.widget_bytes:,} bytes, and the page received",
        f"{first.received_bytes:,} until the first rows were painted, {first.paint_ms:.0f} ms",
        f"after the panel was requested. Of {measured.clicks} clicks half reached Python within",
        f"{first.click_to_python_ms[0]:.0f} ms (95th percentile",
        f"{first.click_to_python_ms[1]:.1f} ms), and half of",
        f"{measured.clicks} selections made in Python were painted within",
        f"{first.python_to_paint_ms[0]:.0f} ms (95th percentile",
        f"{first.python_to_paint_ms[1]:.1f} ms).",
        *(_larger(row) for row in others),
    )


def _larger(row: WidgetRow) -> str:
    return (
        f"{row.rows:,} rows: {row.create_ms:.0f} ms, {row.widget_bytes:,} and "
        f"{row.received_bytes:,} bytes, {row.paint_ms:.0f} ms."
    )


def trust(records: Records) -> str:
    """Verdicts of a quiet machine, and of the same machine beside busy processes."""
    measured = records.get("trust", TrustBench)
    if measured is None:
        return ""
    rows = [tuple(row.values()) for row in measured.table()]
    caption = paragraph(
        f"`paifuser-lab bench trust` on {measured.machine}:",
        "comparisons of three models with three variants. A verdict is wrong if most of the quiet",
        "comparisons say otherwise; the column after it counts what the intervals would have said",
        "without asking how quiet the machine was. An effect is large from "
        f"{LARGE} × on, quietly measured.",
    )
    return f"{caption}\n\n{table(tuple(measured.table()[0]), rows)}"


BLOCKS: dict[str, Block] = {
    "trust": trust,
    "widgets": widgets,
}
