"""The rank agreement of each sensitivity method with the measured loss, and its time: over the
models with data.
"""

from __future__ import annotations

from collections.abc import Sequence

from paifuser_lab.bench.each import measure_each
from paifuser_lab.loading.load import load
from paifuser_lab.machine import machine_label
from paifuser_lab.records import Method, Record, Sensitivity
from paifuser_lab.saliency import sensitivity

MODELS = ("resnet18-digits-tiny", "resnet18-digits", "resnet18-hard-digits")
FORMATS = ("int2-weights", "int3-weights", "int4-weights", "int8")
METHODS = (
    "quadratic",
    "quadratic-curvature",
    "trace",
    "fisher",
    "fisher-sampled",
    "divergence",
    "output",
    "ablation",
)


class SensitivityBench(Record):
    """The result of `python -m benchmarks sensitivity`."""

    machine: str
    records: tuple[Sensitivity, ...]
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"rank agreement with the measured rise of the loss on {self.machine}"

    def table(self) -> list[dict[str, str]]:
        """A row for each model and method."""
        rows = [_row(record, method) for record in self.records for method in record.methods]
        return rows or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """The failures and the notes of each record, a line each."""
        failures = [f"{name}: {why}" for name, why in self.failures.items()]
        notes = [f"{record.workload}: {note}" for record in self.records for note in record.notes]
        return "\n".join(failures + notes)


def bench(
    names: tuple[str, ...],
    *,
    formats: Sequence[str] = FORMATS,
    methods: Sequence[str] = METHODS,
    batches: int | None = 12,
    error: float = 0.05,
) -> SensitivityBench:
    """Estimate models one after another; a failure is recorded and the next one is estimated."""
    records: list[Sensitivity] = []

    def estimate(name: str) -> None:
        work = load(name)
        records.append(
            sensitivity(work, formats=formats, methods=methods, batches=batches, error=error)
        )

    failures = measure_each(names or MODELS, estimate)
    return SensitivityBench(machine=machine_label(), records=tuple(records), failures=failures)


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
