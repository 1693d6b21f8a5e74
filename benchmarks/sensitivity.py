"""The rank agreement of each sensitivity method with the measured loss, and its time."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Annotated

import typer

from paifuser_lab.bench.runner import BenchRecord, Names, measured_rows
from paifuser_lab.records import Method, Sensitivity
from paifuser_lab.saliency import sensitivity
from paifuser_lab.variant.load import load

from .hessian_peer import HessianBench
from .hessian_peer import bench as traced

MODELS = ("resnet18-digits-tiny", "resnet18-digits", "resnet18-hard-digits")
FORMATS = ("int2-weights", "int3-weights", "int4-weights", "int8")
ERROR = 0.05  # of an estimate
METHODS = (
    "quadratic",
    "quadratic-curvature",
    "trace",
    "fisher",
    "divergence",
    "output",
    "ablation",
)


class SensitivityBench(BenchRecord):
    """The result of `python -m benchmarks sensitivity`."""

    caption = "rank agreement with the measured rise of the loss on {0.machine}"
    records: tuple[Sensitivity, ...]

    def table(self) -> list[dict[str, str]]:
        """A row for each model and method."""
        rows = [_row(record, method) for record in self.records for method in record.methods]
        return rows or super().table()

    @property
    def agreements(self) -> list[str]:
        """How well the methods that a page names agree with the measured loss, a text a model."""
        return [
            f"`{record.workload}`: {'; '.join(texts)}"
            for record in self.records
            if (texts := _agreements(record)) and texts[0].startswith("quadratic")
        ]

    @property
    def summary(self) -> str:
        """The failures and the notes of each record, a line each."""
        notes = [f"{record.workload}: {note}" for record in self.records for note in record.notes]
        return "\n".join(self.failed + notes)


def _agreements(record: Sensitivity) -> list[str]:
    return [
        f"{method.name} "
        + ", ".join(f"{value:.2f} ({name})" for name, value in method.agreement.items())
        for method in record.methods
        if method.name in ("quadratic", "trace", "fisher") and method.agreement
    ]


def bench(
    names: Names = None,
    *,
    peer: Annotated[
        str | None,
        typer.Option(
            help="pyhessian: instead, seconds to each layer's trace beside that package's."
        ),
    ] = None,
    formats: Sequence[str] = FORMATS,
    methods: Sequence[str] = METHODS,
    batches: int | None = 12,
) -> SensitivityBench | HessianBench:
    """Compare each method of sensitivity with measurements: rank agreement and seconds."""
    if peer not in (None, "pyhessian"):
        raise typer.BadParameter(f"'{peer}' is no peer; there is pyhessian.")
    if peer is not None:
        return traced(names)

    def estimated(name: str) -> list[Sensitivity]:
        work = load(name)
        return [sensitivity(work, formats=formats, methods=methods, batches=batches, error=ERROR)]

    measured = measured_rows(names or MODELS, estimated)
    return SensitivityBench(records=measured["rows"], failures=measured["failures"])


def _row(record: Sensitivity, method: Method) -> dict[str, str]:
    agreement = {
        name: f"{method.agreement[name]:.2f}" if name in method.agreement else "–"
        for name in record.formats
    }
    return {
        "model": record.workload,
        "method": method.name,
        **agreement,
        "seconds": f"{method.seconds:.1f}",
        "samples": str(method.samples),
    }
