"""Models exported in each precision: parity, size, seconds, latency beside the live variant; what
every target does with one model; and whether models that are hard to export come out right or are
refused.
"""

from __future__ import annotations

import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from paifuser_lab.bench.each import measure_each
from paifuser_lab.converter import export, exporters, target_of
from paifuser_lab.errors import PaifuserError, first_line
from paifuser_lab.machine import machine_label
from paifuser_lab.recipe import Recipe
from paifuser_lab.records import ExporterRow, Exporters, ExportReport, Record
from paifuser_lab.variant import Variant, apply
from paifuser_lab.variant.open import load
from paifuser_lab.workload import Workload
from tests.support.tricky_exports import TRICKY, TrickyRow, tricky_row

MODELS = ("resnet18", "mobilenetv2", "vit-s", "bert-base", "yolo", "swin-t")
PRECISIONS = ("fp32", "fp16", "int8")
NONE = "none"  # in place of a model
SECONDS = 4.0  # for the latency of each file


class ExportRow(Record):
    """One model in one precision, as a file of one target."""

    model: str
    target: str
    precision: str
    report: ExportReport | None = None
    refused: str = ""


class ExportBench(Record):
    """The result of `python -m benchmarks export`."""

    machine: str
    rows: tuple[ExportRow, ...] = ()
    targets: Exporters | None = None  # every target with one model
    tricky: tuple[TrickyRow, ...] = ()
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"export on {self.machine}"

    @property
    def summary(self) -> str:
        """What was refused, what came of the hard models, and the failures."""
        lines = [f"{name}: {why}" for name, why in self.failures.items()]
        lines += [
            f"{row.model} {row.precision} to {row.target}: {row.refused}"
            for row in self.rows
            if row.refused
        ]
        lines += [
            f"{row.title}: {reason}"
            for row in self._targets
            if (reason := row.obstacle or row.refused)
        ]
        if self.tricky:
            counts = {
                outcome: sum(row.outcome == outcome for row in self.tricky)
                for outcome in ("right", "refused", "wrong")
            }
            lines.append(
                f"{len(self.tricky)} exports of models that are hard to export: "
                + ", ".join(f"{count} {outcome}" for outcome, count in counts.items())
            )
        return "\n".join(lines)

    def table(self) -> list[dict[str, str]]:
        """A row per export."""
        reports = [(row.model, row.report) for row in self.rows]
        reports += [(row.report.model, row.report) for row in self._targets if row.report]
        return [{"model": name, **report.row()} for name, report in reports if report] or [
            {"model": "nothing was exported"}
        ]

    @property
    def _targets(self) -> tuple[ExporterRow, ...]:
        return self.targets.rows if self.targets is not None else ()


def bench(
    names: Sequence[str] = (),
    *,
    targets: Sequence[str] = ("onnx",),
    precisions: Sequence[str] = PRECISIONS,
    tricky: Sequence[str] | None = None,
    every: bool = True,
    seconds: float = SECONDS,
) -> ExportBench:
    """Export each model in each precision, then the first of them to every target, then the models
    that are hard to export; failures are recorded.
    """
    for target in targets:
        target_of(target)
    tables: list[Exporters] = []
    rows: list[ExportRow] = []
    hard: list[TrickyRow] = []
    chosen = () if tuple(names) == (NONE,) else tuple(names or MODELS)
    failures = measure_each(
        chosen, lambda name: rows.extend(_rows(name, targets, precisions, seconds))
    )
    if every:
        first = chosen[0] if chosen else ""
        failures |= measure_each(
            [first], lambda name: tables.append(every_target(name, seconds)), "targets"
        )
    cases = tuple(TRICKY) if tricky is None else tuple(tricky)
    failures |= measure_each(
        cases,
        lambda name: hard.extend(tricky_row(name, dynamic=dynamic) for dynamic in (False, True)),
        "hard models",
    )
    return ExportBench(
        machine=machine_label(),
        rows=tuple(rows),
        targets=tables[0] if tables else None,
        tricky=tuple(hard),
        failures=failures,
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
