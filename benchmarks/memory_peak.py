"""The predicted peak of models of the zoo against two measured ones: all that torch's allocator
gave out, by its profiler, and the resident bytes of a process of its own.

The difference of the two measured ones is memory that torch does not allocate: oneDNN's and MKL's
own buffers and code, and what the C library keeps. It is reported and not predicted.
"""

from __future__ import annotations

from collections.abc import Sequence
from statistics import median

from pydantic import Field

from paifuser_lab.bench.each import measure_each
from paifuser_lab.loading.load import load, models
from paifuser_lab.machine import machine_label
from paifuser_lab.machine.host import threads
from paifuser_lab.measure import peak_bytes
from paifuser_lab.memory import predicted_peak
from paifuser_lab.memory.predict.examples import real_subject
from paifuser_lab.memory.predict.step import Observer, run
from paifuser_lab.records import PeakBytes, Record, StepOptions, readable_bytes
from paifuser_lab.records.predicted_peak import RESIDENT_MORE_BYTES, RESIDENT_RATIO, resident_bound
from paifuser_lab.workload import Inputs, Workload, outside_inference
from paifuser_lab.workload.batching import tensor_bytes
from paifuser_lab.workload.seeding import preserve_rng

from .resident import resident_bytes

SETTINGS = (
    (StepOptions(), 1),
    (StepOptions(), 8),
    (StepOptions(train=True), 8),
)
TOLERANCE = 0.1


class PeakRow(Record):
    """A model's predicted and measured peaks of one call or training step, in bytes."""

    model: str
    options: StepOptions
    batch: int
    held: PeakBytes
    measured_bytes: int = Field(gt=0)
    resident_bytes: int | None = None

    @property
    def ratio(self) -> float:
        """Predicted over what torch's allocator gave out."""
        return self.held.total_bytes / self.measured_bytes

    @property
    def outside_bytes(self) -> int | None:
        """What the process took beyond torch's allocator."""
        return None if self.resident_bytes is None else self.resident_bytes - self.measured_bytes

    @property
    def process_ratio(self) -> float | None:
        """What the process took over what was predicted."""
        return None if self.resident_bytes is None else self.resident_bytes / self.held.total_bytes

    @property
    def is_bounded(self) -> bool:
        """Whether the process took at most what `lab.fits` names for one."""
        return (self.resident_bytes or 0) <= resident_bound(self.held.total_bytes)


class MemoryPeakBench(Record):
    """The result of `python -m benchmarks memory-peak`."""

    machine: str
    threads: int
    rows: tuple[PeakRow, ...]
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"peak memory on {self.machine}, {self.threads} thread(s): predicted / measured"

    def table(self) -> list[dict[str, str]]:
        """A row for each model and setting."""
        rows = [
            {
                "model": row.model,
                "of": f"{'training' if row.options.train else 'call'}, batch {row.batch}",
                "predicted": readable_bytes(row.held.total_bytes),
                "measured": readable_bytes(row.measured_bytes),
                "ratio": f"{row.ratio:.3f}",
                "resident": readable_bytes(row.resident_bytes),
                "outside torch": readable_bytes(row.outside_bytes),
                "workspace": readable_bytes(row.held.workspace_bytes),
            }
            for row in self.rows
        ]
        return rows or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """How far the predictions are off, and the failures, a line each."""
        lines = [f"{name}: {why}" for name, why in self.failures.items()]
        if self.rows:
            lines[:0] = [self.process] if self.process else []
            ratios = sorted(row.ratio for row in self.rows)
            near = sum(abs(ratio - 1) <= TOLERANCE for ratio in ratios)
            lines.insert(
                0,
                f"{near} of {len(ratios)} within {TOLERANCE:.0%} of what torch's allocator gave "
                f"out; ratios from {ratios[0]:.3f} to {ratios[-1]:.3f}, median "
                f"{median(ratios):.3f}",
            )
        return "\n".join(lines)

    @property
    def process(self) -> str:
        """How much more than predicted the processes took, and whether their bound held; '' where
        none was measured.
        """
        known = [row for row in self.rows if row.resident_bytes is not None]
        parts = []
        for word, train in (("a call", False), ("a step of training", True)):
            ratios = [
                row.process_ratio
                for row in self.rows
                if row.options.train == train and row.process_ratio is not None
            ]
            if ratios:
                parts.append(f"{min(ratios):.2f} to {max(ratios):.2f} × for {word}")
        held = sum(row.is_bounded for row in known)
        if not known:
            return ""
        return (
            f"a process of its own took {' and '.join(parts)}, and at most {RESIDENT_RATIO} × and "
            f"{readable_bytes(RESIDENT_MORE_BYTES)} in {held} of {len(known)}"
        )


def bench(
    names: Sequence[str] = (),
    *,
    settings: Sequence[tuple[StepOptions, int]] = SETTINGS,
    is_resident: bool = True,
    count: int = 1,
) -> MemoryPeakBench:
    """Predict and measure each model in each setting; failures are recorded."""
    rows: list[PeakRow] = []

    def measure(name: str) -> None:
        work = load(name)
        for options, batch in settings:
            rows.append(row_of(work, options, batch, is_resident=is_resident, count=count))

    failures = measure_each(names or models(), measure)
    return MemoryPeakBench(
        machine=machine_label(), threads=count, rows=tuple(rows), failures=failures
    )


def row_of(
    work: Workload, options: StepOptions, batch: int, *, is_resident: bool, count: int = 1
) -> PeakRow:
    """The row of one model in one setting."""
    with threads(count):
        predicted = predicted_peak(work, batch=batch, **options.model_dump())
        measured = measured_bytes(work, options, batch)
    return PeakRow(
        model=work.name,
        options=options,
        batch=batch,
        held=predicted.held,
        measured_bytes=measured,
        resident_bytes=resident_bytes(work.name, options, batch, count) if is_resident else None,
    )


@outside_inference
def measured_bytes(work: Workload, options: StepOptions, batch: int) -> int:
    """The bytes of weights and inputs, and the peak of what torch allocates in one call or in two
    steps of training.
    """
    subject = real_subject(work, options, batch)
    tensors = (*subject.model.parameters(), *subject.model.buffers())
    held = {tensor.untyped_storage().data_ptr(): tensor.untyped_storage() for tensor in tensors}
    inputs = tensor_bytes(Inputs(tuple(subject.tensors)))
    with preserve_rng(work.device):
        called = peak_bytes(lambda: run(subject, Observer()), work.device)
    return sum(storage.nbytes() for storage in held.values()) + inputs + called
