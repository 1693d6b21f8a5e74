"""Measure one batch size: memory in one call, then latency; failures become rows."""

from __future__ import annotations

import time
from dataclasses import dataclass, field
from functools import cached_property

import torch

from ...errors import MeasureError, first_line
from ...machine.host import threads as using_threads
from ...measure import Candidate, Samples, peak_bytes, rounds_in_turn
from ...memory import Predictor
from ...memory.limits import is_out_of_memory, release
from ...model.watch import describe, failing_layer
from ...records import BatchRow, StepOptions, readable_bytes
from ...workload import Inputs, Workload
from ...workload.batching import leading_sizes, repeated, tensor_bytes
from .plan import lost_batch

ROUNDS, FEWEST_ROUNDS = 5, 3


@dataclass
class Trial:
    """Measures batches within a memory limit, with a number of threads and of seconds each."""

    work: Workload
    example: int
    weights: int
    limit: int
    threads: int
    seconds: float
    full: set[int] = field(default_factory=set)  # batches that do not fit into memory
    is_exhausted: bool = False  # memory itself ran out, not only the limit
    leading_sizes: list[tuple[int, tuple[int, ...]]] = field(default_factory=list)

    @cached_property
    def predictor(self) -> Predictor | None:
        """Predicts the memory of a batch; None for a model that does not run on fake tensors."""
        try:
            return Predictor(self.work, StepOptions())
        except MeasureError:
            return None

    def predicted_bytes(self, batch: int) -> int | None:
        """The memory that a batch needs, predicted with fake tensors; None where it cannot be."""
        with using_threads(self.threads):
            return None if self.predictor is None else self.predictor.peak_bytes(batch)

    def row_or_failure(self, batch: int) -> BatchRow:
        """The row of a batch; one that fails, of memory or otherwise, is freed and says why."""
        try:
            return self.row(batch, repeated(self.work.inputs, self.example, batch))
        except Exception as error:
            is_full, reason = is_out_of_memory(error), first_line(error).rstrip(".")
        # only after the error is gone, whose traceback holds references to the tensors
        release(self.work.device)
        if is_full:
            self.full.add(batch)
            self.is_exhausted = True
            return BatchRow(batch=batch, failure=f"ran out of memory: {reason}")
        return BatchRow(batch=batch, failure=f"fails at {self.failing_layer(batch)}: {reason}")

    def failing_layer(self, batch: int) -> str:
        """A description of the layer at which the model fails with this batch."""
        inputs = repeated(self.work.inputs, self.example, batch)
        layer, _ = failing_layer(self.work.model, lambda: inputs(self.work.model))
        return describe(self.work.model, layer)

    def row(self, batch: int, inputs: Inputs) -> BatchRow:
        """Memory first, in one call; then time, if memory is within the limit."""
        leading: tuple[int, ...] = ()

        def call() -> None:
            nonlocal leading
            leading = leading_sizes(inputs(self.work.model))

        with using_threads(self.threads):
            needed = self.weights + tensor_bytes(inputs) + peak_bytes(call, self.work.device)
        if needed > self.limit:
            self.full.add(batch)
            failure = (
                f"needs {readable_bytes(needed)}, more than the limit of "
                f"{readable_bytes(self.limit)}"
            )
            return BatchRow(batch=batch, failure=failure)
        if (lost := lost_batch(self.leading_sizes, batch, leading)) is not None:
            failure = (
                f"the output is for {lost} examples, the input has {batch}: the model fixes a batch"
            )
            return BatchRow(batch=batch, failure=failure)
        self.leading_sizes.append((batch, leading))
        row = with_time(BatchRow(batch=batch, peak_bytes=needed), self.timed(batch, inputs))
        return row.model_copy(update={"utilisation": _utilisation(self.work.device)})

    def timed(self, batch: int, inputs: Inputs) -> Samples:
        """Time several calls of one batch, fewer if they are slow."""
        began, timed = time.perf_counter(), Samples()
        for samples in rounds_in_turn(
            [self.candidate(batch, inputs)], rounds=ROUNDS, seconds=self.seconds
        ):
            timed = samples[str(batch)]
            if len(timed.rounds_ms) >= FEWEST_ROUNDS and time.perf_counter() - began > self.seconds:
                break
        return timed

    def candidate(self, batch: int, inputs: Inputs) -> Candidate:
        """A batch as `measure` times it."""
        return Candidate(
            str(batch), lambda: inputs(self.work.model), self.threads, self.work.device
        )


def with_time(row: BatchRow, samples: Samples) -> BatchRow:
    """The row with the times of its samples."""
    latency_ms = samples.median_ms
    times = {
        "latency_ms": latency_ms,
        "spread_ms": samples.spread_ms,
        "throughput_per_s": row.batch / latency_ms * 1e3,
    }
    return row.model_copy(update=times)


def _utilisation(device: torch.device) -> float | None:
    """The current GPU utilisation; None on a CPU or if the driver does not report it."""
    if device.type != "cuda":
        return None
    try:
        return torch.cuda.utilization(device) / 100
    except Exception:  # pynvml is missing, or this GPU (a part of one, say) has no such counter
        return None
