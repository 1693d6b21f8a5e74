"""Blocks about exports: what every target does, models in each precision, and models that are hard
to export.
"""

from __future__ import annotations

from paifuser_lab.records import ExporterRow, ExportReport

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
TARGETS = (
    "target",
    "converted here",
    "run here",
    "error",
    "MB",
    "live → file, ms",
    "not verified here, or what it needs",
)
HARD = ("model", "batch", "outcome", "why")


def export(records: Records) -> str:
    """Each model in each precision, then each hard model."""
    measured = records.get("export", ExportBench)
    if measured is None:
        return ""
    caption = paragraph(
        f"`python -m benchmarks export` on {measured.machine}, batch 1: relative L2 error against",
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


def targets(records: Records) -> str:
    """What every target does with one model on one machine."""
    measured = records.get("export", ExportBench)
    if measured is None or measured.targets is None:
        return ""
    caption = paragraph(
        f"{measured.targets.model} on {measured.machine}, batch 1, fp32, each file compared and",
        "timed in turn with the live model; where a target refuses it, a small net of two",
        "convolutions.",
    )
    rows = [_target_row(row, measured.targets.model) for row in measured.targets.rows]
    return f"{caption}\n\n{table(TARGETS, rows)}"


def _target_row(row: ExporterRow, model: str) -> list[str]:
    report = row.report
    reasons = [row.obstacle or row.refused, report.not_verified if report else ""]
    why = " ".join(reason.replace("|", "\\|") for reason in reasons if reason) or "–"
    if report is None:
        return [row.title, "no", "no", "–", "–", "–", why]
    return [
        row.title,
        "yes" if report.model == model else f"{report.model} net",
        "yes" if report.runs_here else "no",
        "–" if report.error is None else power(report.error),
        number(report.bytes / 1e6),
        _latencies(report),
        why,
    ]


def _latencies(report: ExportReport) -> str:
    if report.latency_ms is None or report.live_ms is None:
        return "–"
    return f"{number(report.live_ms)} → {number(report.latency_ms)}"


def _row(row: ExportRow) -> list[str]:
    report = row.report
    if report is None:
        return [row.model, row.target, row.precision, "–", "refused", "–", "–", "–", "–"]
    return [
        row.model,
        report.title,
        row.precision,
        str(report.opset or "–"),
        "not run" if report.error is None else power(report.error),
        number(report.bytes / 1e6),
        number(report.convert_s),
        _latencies(report),
        "–" if report.speed_up is None else ratio(report.speed_up, report.interval),
    ]


BLOCKS: dict[str, Block] = {"targets": targets, "export": export}
