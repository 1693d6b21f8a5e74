"""Blocks about exports: models in each precision, and models that are hard to export."""

from __future__ import annotations

from ..export import ExportBench, ExportRow
from .folder import Block, Records
from .text import number, paragraph, power, ratio, table

HEADER = (
    "model",
    "target",
    "precision",
    "opset",
    "error",
    "MB",
    "convert, s",
    "live → file, ms",
    "×",
)
HARD = ("model", "batch", "outcome", "why")


def export(records: Records) -> str:
    """Each model in each precision, then each hard model."""
    measured = records.get("export", ExportBench)
    if measured is None:
        return ""
    caption = paragraph(
        f"`paifuser-lab bench export` on {measured.machine}, batch 1: relative L2 error against",
        "the live variant on the example and on other values; latency in turn with it.",
    )
    hard = paragraph(
        f"{measured.summary.splitlines()[-1]} (with the example's batch, and with any)."
        if measured.tricky
        else "",
    )
    rows = [
        (row.name, "any" if row.dynamic else "fixed", row.outcome, row.what)
        for row in measured.tricky
    ]
    parts = [caption, table(HEADER, map(_row, measured.rows)), hard]
    return "\n\n".join([*parts, table(HARD, rows)] if rows else parts[:2])


def _row(row: ExportRow) -> list[str]:
    report = row.report
    if report is None:
        return [row.model, row.target, row.precision, "–", "refused", "–", "–", "–", "–"]
    has_ms = report.latency_ms is not None and report.live_ms is not None
    return [
        row.model,
        report.title,
        row.precision,
        str(report.opset or "–"),
        "not run" if report.error is None else power(report.error),
        number(report.bytes / 1e6),
        number(report.convert_s),
        f"{number(report.live_ms or 0)} → {number(report.latency_ms or 0)}" if has_ms else "–",
        "–" if report.speed_up is None else ratio(report.speed_up, report.interval),
    ]


BLOCKS: dict[str, Block] = {"export": export}
