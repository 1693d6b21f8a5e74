"""How well each way of judging layers agrees with the measured loss, and what it takes: over the
models that have data.
"""

from __future__ import annotations

from collections.abc import Sequence

from ..errors import PaifuserError
from ..machine import hardware
from ..progress import progress
from ..records import Method, Record, Sensitivity
from ..saliency import sensitivity
from ..workload.load import load

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
    """What `paifuser-lab bench sensitivity` measured."""

    machine: str
    records: tuple[Sensitivity, ...]
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """What the table shows."""
        return f"rank agreement with the measured rise of the loss on {self.machine}"

    def table(self) -> list[dict[str, str]]:
        """A row a model and method."""
        rows = [_row(record, method) for record in self.records for method in record.methods]
        return rows or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """What is to be kept in mind."""
        return "\n".join(
            f"{record.workload}: {note}" for record in self.records for note in record.notes
        )


def bench(
    names: tuple[str, ...],
    *,
    formats: Sequence[str] = FORMATS,
    methods: Sequence[str] = METHODS,
    batches: int | None = 12,
    error: float = 0.05,
) -> SensitivityBench:
    """Judge models one after another; one that fails is noted and the others go on."""
    records: list[Sensitivity] = []
    failures: dict[str, str] = {}
    chosen = names or MODELS
    with progress("models", len(chosen)) as shown:
        for name in chosen:
            try:
                records.append(
                    sensitivity(
                        load(name), formats=formats, methods=methods, batches=batches, error=error
                    )
                )
            except PaifuserError as problem:
                failures[name] = str(problem)
            except KeyboardInterrupt:
                break
            shown.advance(doing=name)
    return SensitivityBench(machine=hardware().name, records=tuple(records), failures=failures)


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
