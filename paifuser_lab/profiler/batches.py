"""Find a batch size: by doubling, then closer around the knee, never beyond a memory limit.

`batch_plan` decides which batches to run; they are run here and timed by `measure`. The memory of a
batch is predicted before it is run, with fake tensors or else from smaller batches; one that
exceeds the limit is not run. The others' memory is measured in one call before they are timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import torch

from ..arguments import bytes_of, check_count, check_seconds, check_threads
from ..errors import MeasureError, first_line, keep_when_stopped, stop_if_asked
from ..machine import thread_choices
from ..machine.host import device_name
from ..machine.host import threads as using_threads
from ..measure import Candidate, Samples, peak_bytes, rounds_in_turn
from ..memory import Predictor
from ..memory.limits import is_out_of_memory, release, safe_limit
from ..model.watch import describe, failing_layer
from ..model.weights import weights_bytes
from ..progress import Progress, progress
from ..records import BatchRow, BatchSweep, StepOptions, readable_bytes
from ..records.text import readable_rate
from ..workload import Inputs, Workload, running, workload_of
from ..workload.batching import example_batch, first_of, leading_sizes, repeated, tensor_bytes
from . import batch_plan as plan

ROUNDS, FEWEST_ROUNDS = 5, 3
FINAL_ROUNDS = 11
NOT_TRIED = "not tried: "
REFINEMENTS = 2
CALLS_PER_BATCH = 12  # of a slow batch, about, with warm-up
SWEEP_SHARE = 0.7  # of the seconds; the rest is for the last rounds


def batch_size(
    work: Workload,
    memory_limit: int | str | None = None,
    *,
    most: int = 1024,
    plateau: float = 0.85,
    seconds: float = 30.0,
    threads: int | None = None,
    should_stop: Callable[[], bool] | None = None,
) -> BatchSweep:
    """Find the smallest batch that reaches `plateau` of the best throughput within a limit.

    The limit (bytes, or '2 GB') covers weights, inputs and the memory of a call; the default is a
    safe share of the free memory. Batches are made by repeating the example inputs: every tensor
    whose first dimension is that of the first tensor. When interrupted, what was measured until
    then is kept.
    """
    subject, work = work, workload_of(work)
    check_count("most", most)
    check_seconds(seconds, may_be_zero=False)
    check_threads(threads)
    if not 0 < plateau <= 1:
        raise MeasureError(
            f"plateau={plateau} is no share of the best throughput; give a ratio above 0 and up to "
            "1, such as 0.85."
        )
    weights = weights_bytes(work.model)
    limit = (
        safe_limit(work.device, weights=weights) if memory_limit is None else bytes_of(memory_limit)
    )
    if weights > limit:
        raise MeasureError(
            f"{work.name} needs {readable_bytes(weights)} for its weights alone and the memory "
            f"limit is {readable_bytes(limit)}; raise memory_limit."
        )
    count = threads or subject.own_threads or thread_choices()[-1]
    share = seconds * SWEEP_SHARE / (most.bit_length() + 2 * REFINEMENTS)
    trial = Trial(work, example_batch(work), weights, limit, count, share)
    sweep = _Sweep(trial, most, plateau, seconds, should_stop or (lambda: False))
    with (
        keep_when_stopped(lambda: bool(sweep.throughputs)) as ending,
        running(work.model),
        progress("batch sizes", most.bit_length() + 2 * REFINEMENTS + FINAL_ROUNDS) as shown,
    ):
        sweep.double(shown)
        sweep.refine(shown)
        sweep.take_turns(shown)
    sweep.is_interrupted = ending.is_stopped
    return sweep.record()


@dataclass
class _Sweep:
    """A running sweep: the rows so far, and why it ended."""

    trial: Trial
    most: int
    plateau: float
    seconds: float
    should_stop: Callable[[], bool]
    began: float = field(default_factory=lambda: time.perf_counter())
    rows: dict[int, BatchRow] = field(default_factory=dict)
    turns: dict[int, Samples] = field(default_factory=dict)
    end: str = ""
    is_interrupted: bool = False

    @property
    def throughputs(self) -> dict[int, float]:
        """Throughput by batch, of those that ran."""
        return {
            batch: row.throughput_per_s
            for batch, row in sorted(self.rows.items())
            if row.throughput_per_s is not None
        }

    @property
    def left_s(self) -> float:
        return self.seconds - (time.perf_counter() - self.began)

    def double(self, shown: Progress) -> None:
        """Batches of 1, 2, 4 … until there is a reason to stop."""
        batch: int | None = 1
        while batch is not None:
            self.run(batch, shown)
            batch = self.next_doubling(batch)
        if not self.throughputs:
            raise self.nothing_ran()

    def next_doubling(self, batch: int) -> int | None:
        """The batch to run next; None if there is a reason to stop, which goes to `end`."""
        has_run = bool(self.throughputs)
        following = plan.doubled(
            batch, most=self.most, example=None if has_run else self.trial.example
        )
        if batch in self.trial.full:
            self.end = (
                "memory does not hold larger batches"
                if self.trial.is_exhausted
                else "larger batches would pass the memory limit"
            )
        elif has_run and batch not in self.throughputs:
            self.end = f"the model fails at a batch of {batch}"
        elif not has_run and batch >= self.trial.example:
            self.end = "the model fails at the batch of its own example"
        elif plan.has_levelled_off(self.throughputs):
            self.end = "two more doublings brought less than 3% more"
        elif following is None:
            self.end = f"no batch above {self.most} was to be tried"
        elif not self.has_time_for(following):
            self.end = "there was no time for larger batches"
        return None if self.end else following

    def refine(self, shown: Progress) -> None:
        """Run batches halfway between the knee and its neighbours: one may be smaller or better."""
        for _ in range(REFINEMENTS):
            # a batch that the model rejects says nothing about its neighbours
            known = {*self.throughputs, *self.trial.full}
            for batch in plan.midpoints(plan.knee_of(self.throughputs, self.plateau), known):
                if batch not in self.rows and self.has_time_for(batch):
                    self.run(batch, shown)

    def run(self, batch: int, shown: Progress) -> None:
        """Measure a batch unless its predicted memory exceeds the limit; a failure is a row too."""
        predicted = self.predicted_bytes(batch)
        if predicted is not None and predicted > self.trial.limit:
            self.trial.full.add(batch)
            failure = (
                f"{NOT_TRIED}would need {readable_bytes(predicted)}, more than the limit of "
                f"{readable_bytes(self.trial.limit)}"
            )
            row = BatchRow(batch=batch, failure=failure)
        else:
            row = self.trial.row_or_failure(batch)
        self.rows[batch] = row.model_copy(update={"predicted_bytes": predicted})
        rate = f" · {readable_rate(row.throughput_per_s)} a second" if row.throughput_per_s else ""
        shown.advance(doing=f"{batch}{rate}")
        self.stop_if_asked()

    def predicted_bytes(self, batch: int) -> int | None:
        """A batch's memory, corrected by the largest measured one; None where nothing tells it."""
        measured = {
            size: row.peak_bytes for size, row in self.rows.items() if row.peak_bytes is not None
        }
        ahead = self.trial.predicted_bytes(batch)
        if ahead is None:
            known = {0: self.trial.weights, **measured}
            return plan.predicted_bytes(known, batch) if measured else None
        largest = max(measured, default=0)
        expected = self.trial.predicted_bytes(largest) if largest else None
        return math.ceil(ahead * measured[largest] / expected) if expected else ahead

    def take_turns(self, shown: Progress) -> None:
        """Time the knee, its neighbours and the best again in turn, so that no drift decides."""
        chosen = plan.finalists(self.throughputs, plan.knee_of(self.throughputs, self.plateau))
        # these rounds decide, so they may take somewhat longer than the time reserved for them
        overrun = 2.0
        while len(chosen) > 1 and sum(map(self.expected_s, chosen)) <= overrun * self.left_s:
            try:
                self.time_in_turn(chosen, shown)
            except Exception as error:
                if not is_out_of_memory(error):
                    raise
                # another process took the memory; the rows are valid without these rounds
                release(self.trial.work.device)
                return
            knee = plan.knee_of(plan.shares_in_turn(self.turns), self.plateau)
            chosen, overrun = plan.next_below(self.throughputs, chosen, knee), 1.0

    def time_in_turn(self, chosen: tuple[int, ...], shown: Progress) -> None:
        """Time the chosen batches in turn until the rounds or seconds end."""
        # the other batches are views of the largest, so all fit into memory
        largest = repeated(self.trial.work.inputs, self.trial.example, chosen[-1])
        candidates = [
            self.trial.candidate(
                batch, first_of(largest, self.trial.work.inputs, self.trial.example, batch)
            )
            for batch in chosen
        ]
        for samples in rounds_in_turn(candidates, rounds=FINAL_ROUNDS, seconds=self.left_s):
            self.turns = {batch: samples[str(batch)] for batch in chosen}
            self.rows |= {
                batch: with_time(self.rows[batch], turn) for batch, turn in self.turns.items()
            }
            shown.advance(doing=f"in turn: {', '.join(map(str, chosen))}")
            self.stop_if_asked()
            if self.left_s < 0 and len(samples[str(chosen[0])].rounds_ms) >= FEWEST_ROUNDS:
                break

    def stop_if_asked(self) -> None:
        """Stop if the user asks, but not before there is a result."""
        if self.throughputs:
            stop_if_asked(self.should_stop)

    def has_time_for(self, batch: int) -> bool:
        """Whether a batch can be measured before the last rounds have to begin."""
        return self.expected_s(batch) <= self.left_s - self.seconds * (1 - SWEEP_SHARE)

    def expected_s(self, batch: int) -> float:
        """About how long a batch will take to measure, if latency grows with the batch."""
        timed = [(size, size / throughput) for size, throughput in self.throughputs.items()]
        size, latency_s = min(timed, key=lambda point: abs(point[0] - batch), default=(1, 0.0))
        return CALLS_PER_BATCH * latency_s * batch / size

    def nothing_ran(self) -> Exception:
        """The error that explains why no batch could be measured."""
        if self.trial.full:
            batch = min(self.trial.full)
            remedy = (
                "free some, or take a smaller model"
                if self.trial.is_exhausted
                else "raise memory_limit"
            )
            return MeasureError(
                f"{self.trial.work.name} with a batch of {batch} "
                f"{(self.rows[batch].failure or '').removeprefix(NOT_TRIED)}; {remedy}."
            )
        if self.trial.example in self.rows:
            self.trial.work.output()  # raises too, and names the layer
        batch, row = next(iter(self.rows.items()))
        return MeasureError(
            f"{self.trial.work.name} with a batch of {batch} {row.failure}, and no batch up to "
            f"{max(self.rows)} runs; "
            f"its example has a batch of {self.trial.example}, so give most={self.trial.example} "
            "or more."
        )

    def record(self) -> BatchSweep:
        """The measurements and the choice, by the rounds in turn if there were any."""
        self.rows |= {
            batch: self.rows[batch].model_copy(update={"is_timed_in_turn": True})
            for batch in self.turns
        }
        best = max(self.throughputs.values())
        alone = {batch: throughput / best for batch, throughput in self.throughputs.items()}
        shares = plan.shares_in_turn(self.turns) if self.turns else alone
        knee = plan.knee_of(shares, self.plateau)
        end = "the sweep was stopped early" if self.is_interrupted else self.end
        return BatchSweep(
            workload=self.trial.work.name,
            machine=device_name(self.trial.work.device),
            threads=self.trial.threads,
            memory_limit_bytes=self.trial.limit,
            plateau=self.plateau,
            rows=tuple(self.rows[batch] for batch in sorted(self.rows)),
            knee=knee,
            reason=plan.reason_for(
                knee,
                shares,
                max(self.throughputs[batch] for batch in shares),
                end,
                is_in_turn=bool(self.turns),
            ),
            is_interrupted=self.is_interrupted,
        )


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
        if (lost := plan.lost_batch(self.leading_sizes, batch, leading)) is not None:
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
