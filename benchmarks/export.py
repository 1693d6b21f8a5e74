"""Models exported in each precision, by every target, and models that are hard to export."""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any, ClassVar

import typer

from paifuser_lab.bench.runner import BenchRecord, Columns, measure_each, measured_rows
from paifuser_lab.bench.text import number, power, ratio
from paifuser_lab.converter import export, exporters, target_of
from paifuser_lab.errors import PaifuserError, first_line
from paifuser_lab.records import ExporterRow, Exporters, ExportReport, Record
from paifuser_lab.records.table import table_of
from paifuser_lab.variant import Variant, apply
from paifuser_lab.variant.open import load
from paifuser_lab.variant.recipe import Recipe
from paifuser_lab.workload import Workload
from tests.support.tricky_exports import TRICKY, TrickyRow, tricky_row

MODELS = ("resnet18", "mobilenetv2", "vit-s", "bert-base", "yolo", "swin-t")
PRECISIONS = ("fp32", "fp16", "int8")
NONE = "none"  # in place of a model
HARD: Columns = {
    "model": "name",
    "batch": lambda row: "any" if row.dynamic else "fixed",
    "outcome": "outcome",
    "why": "what",
}


class ExportRow(Record):
    """One model in one precision, as a file of one target."""

    model: str
    target: str
    precision: str
    report: ExportReport | None = None
    refused: str = ""


class ExportBench(BenchRecord):
    """The result of `python -m benchmarks export`."""

    caption = "export on {0.machine}"
    rows: tuple[ExportRow, ...] = ()
    targets: Exporters | None = None  # every target with one model
    tricky: tuple[TrickyRow, ...] = ()
    columns: ClassVar[Columns] = {
        "model": "model",
        "target": lambda row: row.report.title if row.report else row.target,
        "precision": "precision",
        "opset": lambda row: str((row.report and row.report.opset) or "–"),
        "error": lambda row: "refused" if row.report is None else _error(row.report, "not run"),
        "MB": lambda row: number(row.report.bytes / 1e6) if row.report else "–",
        "convert, s": lambda row: number(row.report.convert_s) if row.report else "–",
        "live → file, ms": lambda row: _latencies(row.report),
        "×": lambda row: (
            "–"
            if row.report is None or row.report.speed_up is None
            else ratio(row.report.speed_up, row.report.interval)
        ),
    }

    @property
    def summary(self) -> str:
        """What was refused, what every target did, what came of hard models, and failures."""
        lines = list(self.failed)
        lines += [
            f"{row.model} {row.precision} to {row.target}: {row.refused}"
            for row in self.rows
            if row.refused
        ]
        lines += [": ".join(row.values()) for row in self.table_of_targets()]
        return "\n".join([*lines, *([self.hard] if self.tricky else [])])

    @property
    def hard(self) -> str:
        """What came of the models that are hard to export."""
        outcomes = [row.outcome for row in self.tricky]
        counts = ", ".join(f"{outcomes.count(one)} {one}" for one in ("right", "refused", "wrong"))
        return f"{len(outcomes)} exports of models that are hard to export: {counts}"

    def table_of_targets(self) -> list[dict[str, str]]:
        """What every target does with one model."""
        tried = self.targets.rows if self.targets else ()
        model = self.targets.model if self.targets else ""
        return [{"target": row.title, **_target_cells(row, model)} for row in tried]

    def table_of_hard(self) -> list[dict[str, str]]:
        """The outcome of each hard model."""
        return table_of(HARD, self.tricky)


def _target_cells(row: ExporterRow, model: str) -> dict[str, str]:
    report = row.report
    reasons = [row.obstacle or row.refused, report.not_verified if report else ""]
    converted = "no"
    if report is not None:
        converted = "yes" if report.model == model else f"{report.model} net"
    return {
        "converted here": converted,
        "run here": "yes" if report and report.runs_here else "no",
        "error": _error(report, "–"),
        "MB": number(report.bytes / 1e6) if report else "–",
        "live → file, ms": _latencies(report),
        "not verified here, or what it needs": " ".join(filter(None, reasons)) or "–",
    }


def _error(report: ExportReport | None, unknown: str) -> str:
    return unknown if report is None or report.error is None else power(report.error)


def _latencies(report: ExportReport | None) -> str:
    if report is None or report.latency_ms is None or report.live_ms is None:
        return "–"
    return f"{number(report.live_ms)} → {number(report.latency_ms)}"


def bench(
    names: Annotated[
        list[str] | None,
        typer.Argument(help="Models; six of the zoo where none is named, and no model for `none`."),
    ] = None,
    *,
    to: Annotated[str, typer.Option(help="Targets, separated by commas.")] = "onnx",
    tricky: Annotated[
        bool, typer.Option(help="Also export the models that are hard to export.")
    ] = True,
    every: Annotated[
        bool, typer.Option(help="Also export the first model to every target.")
    ] = True,
    seconds: Annotated[
        float, typer.Option(help="Time for each export's latency; 0 for none.", min=0)
    ] = 4.0,
    precisions: Sequence[str] = PRECISIONS,
) -> ExportBench:
    """Export models in fp32, fp16 and int8: parity, size, seconds, latency beside the live model;
    the first of them to every target; and models that are hard to export, which come out right or
    are refused.
    """
    targets = [target_of(name.strip()).name for name in to.split(",") if name.strip()]
    chosen = () if names == [NONE] else tuple(names or MODELS)
    measured = measured_rows(chosen, lambda name: _rows(name, targets, precisions, seconds))
    tables: list[Exporters] = []
    if every:
        first = chosen[0] if chosen else ""
        measured["failures"] |= measure_each(
            [first], lambda name: tables.append(every_target(name, seconds)), "targets"
        )
    hard = measured_rows(
        tuple(TRICKY) if tricky else (),
        lambda name: [tricky_row(name, dynamic=dynamic) for dynamic in (False, True)],
        "hard models",
    )
    return ExportBench(
        rows=measured["rows"],
        targets=tables[0] if tables else None,
        tricky=hard["rows"],
        failures=measured["failures"] | hard["failures"],
    )


def every_target(name: str, seconds: float) -> Exporters:
    """What every target does with a model, and with a small one where it refuses that; '' is the
    small one alone.
    """
    table = exporters(load(name) if name else None, seconds=seconds)
    rows = []
    for row in table.rows:
        if row.refused and name:
            (small,) = exporters(names=[row.target], seconds=seconds).rows
            row = row.model_copy(update={"report": small.report})
        rows.append(row)
    return table.model_copy(update={"rows": tuple(rows)})


def _rows(
    name: str, targets: Sequence[str], precisions: Sequence[str], seconds: float
) -> list[ExportRow]:
    work = load(name)
    rows = []
    for precision in precisions:
        subject: Workload | Variant = work
        if precision == "int8":
            subject = apply(work, Recipe([{"precision": {"default": "int8"}}]))
        for target in targets:
            rows.append(_row(subject, name, target, precision, seconds))
    return rows


def _row(
    subject: Workload | Variant, name: str, target: str, precision: str, seconds: float
) -> ExportRow:
    row: dict[str, Any] = {"model": name, "target": target, "precision": precision}
    with tempfile.TemporaryDirectory(prefix="paifuser-bench-") as folder:
        path = Path(folder) / f"model{target_of(target).suffix}"
        try:
            report = export(subject, target, path, precision=precision, seconds=seconds)
        except PaifuserError as error:
            return ExportRow(**row, refused=first_line(error))
    return ExportRow(**row, report=report.model_copy(update={"path": path.name}))
