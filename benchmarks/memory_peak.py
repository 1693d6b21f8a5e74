"""The predicted peak of models of the zoo against two measured ones: all that torch's allocator
gave out, by its profiler, and the resident bytes of a process of its own.

The difference of the two measured ones is memory that torch does not allocate: oneDNN's and MKL's
own buffers and code, and what the C library keeps. It is reported and not predicted.
"""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator, Sequence
from statistics import median
from typing import ClassVar

import torch
from pydantic import Field

from paifuser_lab.bench.runner import BenchRecord, Columns, Names, measured_rows
from paifuser_lab.bench.text import megabytes
from paifuser_lab.errors import PaifuserError, first_line
from paifuser_lab.machine.host import threads
from paifuser_lab.measure import pages, peak_bytes
from paifuser_lab.memory import predicted_peak
from paifuser_lab.memory.predict.step import Observer, real_subject, run
from paifuser_lab.records import PeakBytes, Record, StepOptions, readable_bytes
from paifuser_lab.records.predicted_peak import RESIDENT_MORE_BYTES, RESIDENT_RATIO, resident_bound
from paifuser_lab.variant.load import load, models
from paifuser_lab.workload import Inputs, Workload, outside_inference
from paifuser_lab.workload.batching import tensor_bytes
from paifuser_lab.workload.seeding import preserve_rng

from .child import printed

SETTINGS = (
    (StepOptions(), 1),
    (StepOptions(), 8),
    (StepOptions(train=True), 8),
)
TOLERANCE = 0.1
LIMIT_S = 600.0
THREADS = 1


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
    def setting(self) -> str:
        """What was predicted."""
        precision = "" if self.options.precision == "fp32" else f", {self.options.precision}"
        return f"{'training' if self.options.train else 'inference'}{precision}"

    @property
    def process_ratio(self) -> float | None:
        """What the process took over what was predicted."""
        return None if self.resident_bytes is None else self.resident_bytes / self.held.total_bytes

    @property
    def is_bounded(self) -> bool:
        """Whether the process took at most what `lab.fits` names for one."""
        return (self.resident_bytes or 0) <= resident_bound(self.held.total_bytes)


class MemoryPeakBench(BenchRecord):
    """The result of `python -m benchmarks memory-peak`."""

    caption = "peak memory on {0.machine}, {0.threads} thread(s): predicted / measured"
    threads: int
    rows: tuple[PeakRow, ...]
    columns: ClassVar[Columns] = {
        "model": "model",
        "batch": lambda row: f"{row.batch}, {row.setting}",
        "predicted, MB": lambda row: megabytes(row.held.total_bytes),
        "torch allocated, MB": lambda row: megabytes(row.measured_bytes),
        "ratio": lambda row: f"{row.ratio:.3f}",
        "the process took, MB": lambda row: megabytes(row.resident_bytes),
        "× of the prediction": lambda row: (
            "–" if row.process_ratio is None else f"{row.process_ratio:.2f}"
        ),
    }

    @property
    def summary(self) -> str:
        """How far the predictions are off, and the failures, a line each."""
        if not self.rows:
            return "\n".join(self.failed)
        ratios = sorted(row.ratio for row in self.rows)
        near = sum(abs(ratio - 1) <= TOLERANCE for ratio in ratios)
        line = (
            f"{near} of {len(ratios)} within {TOLERANCE:.0%} of what torch's allocator gave out; "
            f"ratios from {ratios[0]:.3f} to {ratios[-1]:.3f}, median {median(ratios):.3f}"
        )
        return "\n".join([line, *([self.process] if self.process else []), *self.failed])

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
            f"a process of its own took {' and '.join(parts)}; {held} of {len(known)} took at most "
            f"{RESIDENT_RATIO} × the prediction plus {readable_bytes(RESIDENT_MORE_BYTES)}"
        )


def bench(
    names: Names = None,
    *,
    settings: Sequence[tuple[StepOptions, int]] = SETTINGS,
    is_resident: bool = True,
) -> MemoryPeakBench:
    """Compare predicted peaks of memory with measured ones."""

    def rows(name: str) -> Iterator[PeakRow]:
        work = load(name)
        for options, batch in settings:
            yield row_of(work, options, batch, is_resident=is_resident)

    return MemoryPeakBench(threads=THREADS, **measured_rows(names or models(), rows))


def row_of(work: Workload, options: StepOptions, batch: int, *, is_resident: bool) -> PeakRow:
    """The row of one model in one setting."""
    with threads(THREADS):
        predicted = predicted_peak(work, batch=batch, **options.model_dump())
        measured = measured_bytes(work, options, batch)
    return PeakRow(
        model=work.name,
        options=options,
        batch=batch,
        held=predicted.held,
        measured_bytes=measured,
        resident_bytes=resident_bytes(work.name, options, batch) if is_resident else None,
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


def resident_bytes(model: str, options: StepOptions, batch: int) -> int | None:
    """Weights, inputs, and how far the resident bytes rise in a fresh process; None where the
    system does not tell it.
    """
    if not pages.restart_peak():
        return None
    words = ["-m", __name__, model, str(batch), options.model_dump_json()]
    lines = printed(model, words, limit_s=LIMIT_S, OMP_NUM_THREADS=str(THREADS))
    return int(lines[-1])


def main(model: str, batch: int, options: StepOptions) -> None:
    """Run the model and print the bytes of weights and inputs and the rise of the resident ones."""
    torch.set_num_threads(THREADS)
    subject = real_subject(load(model), options, batch)
    held = sum(
        tensor.nbytes for tensor in (*subject.model.parameters(), *subject.model.buffers())
    ) + sum(tensor.nbytes for tensor in subject.tensors if isinstance(tensor, torch.Tensor))
    gc.collect()
    pages.restart_peak()
    before = pages.resident_bytes()
    run(subject, Observer())
    peak = pages.peak_resident_bytes() or before
    sys.stdout.write(f"{held + peak - before}\n")


if __name__ == "__main__":
    name, size, text = sys.argv[1:]
    try:
        main(name, int(size), StepOptions.model_validate_json(text))
    except PaifuserError as error:
        sys.exit(first_line(error))
