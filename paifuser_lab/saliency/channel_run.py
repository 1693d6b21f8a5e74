"""Run one estimator of channels over batches: each channel's mean value and standard error."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ..errors import StoppedError, keep_when_stopped, stop_if_asked
from ..progress import progress
from ..workload import Workload
from ..workload.data import SampledBatches, example_inputs, sampled_batches
from .channels import CHANNEL_ESTIMATORS, ChannelEstimator
from .estimation import RunningMean
from .subject import Batch, Layer, Subject, twice_differentiable

BATCHES = 16

ChannelValues = dict[str, tuple[float, ...]]  # by layer: a value for each output channel


@dataclass
class ChannelRun:
    """An estimator and the means of its values so far."""

    estimator: ChannelEstimator
    means: dict[str, RunningMean]
    examples: int = 0
    seconds: float = 0.0
    is_interrupted: bool = False

    @classmethod
    def of(
        cls,
        work: Workload,
        layers: Mapping[str, Layer],
        method: str,
        data: SampledBatches,
        seed: int,
    ) -> ChannelRun:
        """A run of the named method that has not started."""
        subject = Subject(work, dict(layers), (), data, seed)
        means = {name: RunningMean() for name in layers}
        return cls(CHANNEL_ESTIMATORS[method](subject), means)

    @property
    def subject(self) -> Subject:
        """The workload and its layers."""
        return self.estimator.subject

    def run(self, seconds: float | None, should_stop: Callable[[], bool]) -> None:
        """Run batch after batch; at least one, unless it is interrupted during the first."""
        began = time.perf_counter()
        count = len(self.subject.batches) if self.estimator.needs != "nothing" else 1
        with (
            keep_when_stopped(lambda: any(mean.count for mean in self.means.values())) as ending,
            progress(self.estimator.name, count) as shown,
        ):
            for index in range(count):
                self._add(self.subject.batches[index])
                shown.advance()
                stop_if_asked(should_stop)
                if seconds is not None and time.perf_counter() - began > seconds:
                    break
        self.is_interrupted = ending.is_stopped
        self.seconds = time.perf_counter() - began

    def _add(self, batch: Batch) -> None:
        for name, values in self.estimator.values(batch).items():
            self.means[name].add(values.detach().double().cpu())
        if self.estimator.needs != "nothing":
            self.examples += min(batch.examples, self.estimator.most_examples or batch.examples)


def channel_values(
    work: Workload,
    layers: Mapping[str, Layer],
    method: str,
    seed: int,
    should_stop: Callable[[], bool],
) -> tuple[ChannelValues, list[str]]:
    """The values that `lab.importance` shows for these layers, over all batches, and notes; raises
    if stopped early.
    """
    data, notes = batches_for(work, method, None, seed)
    run = ChannelRun.of(work, layers, method, data, seed)
    with twice_differentiable(work.model):
        run.run(None, should_stop)
    if run.is_interrupted:
        raise StoppedError(f"importance '{method}' was stopped before its end.")
    values = {
        name: tuple(mean.mean.abs().tolist()) for name, mean in run.means.items() if mean.count
    }
    return values, notes


def batches_for(
    work: Workload, method: str, batches: int | Sequence[Any] | None, seed: int
) -> tuple[SampledBatches, list[str]]:
    """The batches that a method runs on, and a note where they are test data."""
    if CHANNEL_ESTIMATORS[method].needs == "nothing":
        return example_inputs(work), []
    data = sampled_batches(work, BATCHES if batches is None else batches, seed)
    return data, ["estimated on the test data"] if data.what == "test data" else []


def missing_for(work: Workload, method: str, *, has_batches: bool = False) -> str | None:
    """'data' or 'loss' where a workload lacks what a method needs."""
    needs = CHANNEL_ESTIMATORS[method].needs
    if needs == "loss" and work.loss is None:
        return "loss"
    is_bare = not has_batches and work.train is None and work.test is None
    return "data" if needs != "nothing" and is_bare else None
