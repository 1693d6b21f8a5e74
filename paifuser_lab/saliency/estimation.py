"""Draw samples until every mean has the requested standard error, or the time is over."""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch

from ..progress import Progress, progress
from ..records import Estimate, Method, Sensitivity
from .methods import Estimator
from .subject import Key, Subject

MIN_SAMPLES = 4  # samples before their standard error is trusted


@dataclass
class RunningMean:
    """The mean of samples, which are numbers or tensors, and the sum of their squared distances
    from it.
    """

    count: int = 0
    mean: Any = 0.0
    squares: Any = 0.0

    @classmethod
    def of(cls, estimate: Estimate) -> RunningMean:
        """The running mean behind an estimate."""
        count = estimate.samples or 1
        squares = 0.0 if estimate.error is None else estimate.error**2 * count * (count - 1)
        return cls(count, estimate.value, squares)

    def add(self, value: Any) -> None:
        """Add a sample."""
        self.count += 1
        difference = value - self.mean
        self.mean = self.mean + difference / self.count
        self.squares = self.squares + difference * (value - self.mean)

    @property
    def is_finite(self) -> bool:
        """Whether no sample was infinite or NaN."""
        return bool(torch.as_tensor(self.mean).isfinite().all())

    @property
    def error(self) -> Any:
        """The standard error of the mean; None for a single sample, or one that is not finite."""
        if self.count < 2 or not self.is_finite:
            return None
        return (self.squares / (self.count * (self.count - 1))) ** 0.5

    def is_within(self, relative_error: float) -> bool:
        """Whether the mean has the requested relative standard error; one that is not finite cannot
        become more precise.
        """
        if not self.is_finite:
            return True
        error = self.error
        return self.count >= MIN_SAMPLES and bool(error <= relative_error * abs(self.mean))

    @property
    def estimate(self) -> Estimate:
        """The mean and its error as stored in a record."""
        value = self.mean if self.is_finite else math.inf
        return Estimate(value=value, error=self.error, samples=self.count)


@dataclass
class Estimation:
    """One estimator, and the running means of its samples."""

    estimator: Estimator
    running_means: dict[Key, RunningMean]
    seconds: float = 0.0

    @classmethod
    def of(cls, estimator: Estimator, earlier: Sensitivity | None) -> Estimation:
        """An estimation that continues from an earlier record."""
        known = estimator.earlier(earlier) if earlier else {}
        running_means = {
            key: RunningMean.of(known[key]) if key in known else RunningMean()
            for key in estimator.keys
        }
        methods = earlier.methods if earlier else ()
        before = sum(method.seconds for method in methods if method.name == estimator.name)
        return cls(estimator, running_means, before)

    @property
    def subject(self) -> Subject:
        """The workload and its layers."""
        return self.estimator.subject

    @property
    def most(self) -> int:
        """The largest number of samples of a key."""
        return self.estimator.most_samples or len(self.subject.batches)

    @property
    def open(self) -> list[Key]:
        """The keys whose means are not precise enough yet."""
        return [
            key
            for key, running_mean in self.running_means.items()
            if running_mean.count < self.most and not running_mean.is_within(self.subject.error)
        ]

    @property
    def unsure(self) -> int:
        """How many means are less precise than requested."""
        return sum(
            not running_mean.is_within(self.subject.error)
            for running_mean in self.running_means.values()
            if running_mean.count
        )

    @property
    def method(self) -> Method:
        """The method's entry in the record: its time and number of samples."""
        most = max((running_mean.count for running_mean in self.running_means.values()), default=0)
        return Method(name=self.estimator.name, seconds=self.seconds, samples=most)

    def sample(self, deadline: float, stop_if_asked: Callable[[], None]) -> None:
        """Draw samples; every key gets one even when the time is over, and an interrupt keeps the
        samples so far.
        """
        began = time.perf_counter()
        try:
            with progress(self.estimator.name, self.most * len(self.running_means)) as shown:
                while (keys := self.open) and not self._is_late(deadline):
                    self._round(keys, shown, deadline, stop_if_asked)
        finally:
            self.seconds += time.perf_counter() - began

    def _round(
        self, keys: list[Key], shown: Progress, deadline: float, stop_if_asked: Callable[[], None]
    ) -> None:
        """One more batch for the keys with the fewest samples."""
        least = min(self.running_means[key].count for key in keys)
        next_keys = [key for key in keys if self.running_means[key].count == least]
        batch = self.subject.batches[least % len(self.subject.batches)]
        for key, value in self.estimator.samples(batch, next_keys):
            self.running_means[key].add(value)
            shown.advance(doing=f"{key.layer} {key.format}".rstrip() + _left(deadline))
            stop_if_asked()
            if self._is_late(deadline):
                return

    def _is_late(self, deadline: float) -> bool:
        return time.perf_counter() > deadline and all(
            running_mean.count for running_mean in self.running_means.values()
        )


def _left(deadline: float) -> str:
    """The time until the deadline, as progress shows it; nothing where there is none."""
    left = deadline - time.perf_counter()
    return f", at most {max(left, 0.0):.0f} s left" if math.isfinite(left) else ""
