"""Find a batch size: by doubling, then closer around the knee, never beyond a memory limit.

`plan` decides which batches to run; they are run here and timed by `measure`. The memory of a batch
is predicted before it is run, with fake tensors or else from smaller batches; one that exceeds the
limit is not run at all. The others' memory is measured in one call before they are timed.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

import torch

from ...arguments import bytes_of, check_count, check_seconds, check_threads
from ...errors import MeasureError
from ...machine import thread_choices
from ...machine.host import host_facts
from ...measure import Samples, rounds_in_turn
from ...memory.limits import is_out_of_memory, release, safe_limit
from ...model.weights import weights_bytes
from ...progress import Progress, progress
from ...records import BatchRow, BatchSweep, readable_bytes
from ...records.text import readable_rate
from ...stopping import keep_when_stopped, stop_if_asked
from ...workload import Workload, running, workload_of
from ...workload.batching import example_batch, first_of, repeated
from . import plan
from .trial import FEWEST_ROUNDS, Trial, with_time

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
    """Find the smallest batch that reaches `plateau` of the best throughput within the memory
    limit.

    The limit (bytes, or '2 GB') covers weights, inputs and the memory of a call; the default is a
    safe share of the free memory. Batches are made by repeating the example inputs: every tensor
    whose first dimension is that of the first tensor. When interrupted, what was measured until
    then is kept.
    """
    work = workload_of(work)
    _check(most=most, plateau=plateau, seconds=seconds, threads=threads)
    weights = weights_bytes(work.model)
    limit = (
        safe_limit(work.device, weights=weights) if memory_limit is None else bytes_of(memory_limit)
    )
    count = threads or thread_choices()[-1]
    share = seconds * SWEEP_SHARE / (most.bit_length() + 2 * REFINEMENTS)
    trial = Trial(work, example_batch(work), weights, limit, count, share)
    sweep = _Sweep(trial, most, plateau, seconds, should_stop or (lambda: False))
    sweep.check_weights()
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


def _check(*, most: int, plateau: float, seconds: float, threads: int | None) -> None:
    check_count("most", most)
    check_seconds(seconds, may_be_zero=False)
    check_threads(threads)
    if not 0 < plateau <= 1:
        raise MeasureError(
            f"plateau={plateau} is no share of the best throughput; give a ratio above 0 and up to "
            "1, such as 0.85."
        )


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
        """The seconds that are left."""
        return self.seconds - (time.perf_counter() - self.began)

    def check_weights(self) -> None:
        """Raise if the weights alone exceed the limit."""
        if self.trial.weights > self.trial.limit:
            raise MeasureError(
                f"{self.trial.work.name} needs {readable_bytes(self.trial.weights)} for its "
                "weights alone and the memory limit is "
                f"{readable_bytes(self.trial.limit)}; raise memory_limit."
            )

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
        """The memory that a batch will need, corrected by what the largest measured one needed;
        None where neither fake tensors nor measured batches tell.
        """
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
        shares = (
            plan.shares_in_turn(self.turns) if self.turns else plan.shares_of_best(self.throughputs)
        )
        knee = plan.knee_of(shares, self.plateau)
        end = "the sweep was stopped early" if self.is_interrupted else self.end
        return BatchSweep(
            workload=self.trial.work.name,
            machine=_machine_name(self.trial.work.device),
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


def _machine_name(device: torch.device) -> str:
    return torch.cuda.get_device_name(device) if device.type == "cuda" else host_facts().name
