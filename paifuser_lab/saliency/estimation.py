"""Draw samples from an estimator until every mean has the standard error asked for, or the time is
over.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass, field

from ..progress import Progress, progress
from ..records import Estimate, Method, Sensitivity
from .methods import Estimator
from .subject import Key, Subject

FEWEST = 4  # samples before their spread is believed


@dataclass
class RunningMean:
    """Samples seen so far: how many, their mean, and the sum of their squared distances from it."""

    count: int = 0
    mean: float = 0.0
    squares: float = 0.0

    @classmethod
    def of(cls, estimate: Estimate) -> RunningMean:
        """The running mean that an estimate was made from."""
        count = estimate.samples or 1
        squares = 0.0 if estimate.error is None else estimate.error**2 * count * (count - 1)
        return cls(count, estimate.value, squares)

    def add(self, value: float) -> None:
        """One sample more; one that is no number, or infinite, makes the mean infinite."""
        self.count += 1
        if not math.isfinite(value) or not math.isfinite(self.mean):
            self.mean, self.squares = math.inf, 0.0
            return
        before = value - self.mean
        self.mean += before / self.count
        self.squares += before * (value - self.mean)

    @property
    def error(self) -> float | None:
        """The standard error of the mean; None for a single sample."""
        if self.count < 2 or not math.isfinite(self.mean):
            return None
        return math.sqrt(self.squares / (self.count * (self.count - 1)))

    def is_within(self, relative_error: float) -> bool:
        """Whether the mean is known as well as asked."""
        if not math.isfinite(self.mean):
            return True
        return (
            self.count >= FEWEST
            and self.error is not None
            and self.error <= relative_error * abs(self.mean)
        )

    @property
    def estimate(self) -> Estimate:
        """The mean and its error as a record keeps them."""
        return Estimate(value=self.mean, error=self.error, samples=self.count)


@dataclass
class Estimation:
    """One estimator, and the running means of its samples."""

    estimator: Estimator
    running_means: dict[Key, RunningMean]
    seconds: float = 0.0
    _began: float = field(default=0.0, repr=False)

    @classmethod
    def of(cls, estimator: Estimator, earlier: Sensitivity | None) -> Estimation:
        """An estimation that continues from an earlier record."""
        known = estimator.earlier(earlier) if earlier else {}
        running_means = {
            key: RunningMean.of(known[key]) if key in known else RunningMean()
            for key in estimator.keys
        }
        before = (
            [method.seconds for method in earlier.methods if method.name == estimator.name]
            if earlier
            else []
        )
        return cls(estimator, running_means, sum(before))

    @property
    def subject(self) -> Subject:
        """The workload and its layers."""
        return self.estimator.subject

    @property
    def most(self) -> int:
        """Samples of a key at most."""
        return self.estimator.most_samples or len(self.subject.batches)

    @property
    def open(self) -> list[Key]:
        """The keys whose means are not certain enough yet."""
        return [
            key
            for key, running_mean in self.running_means.items()
            if running_mean.count < self.most and not running_mean.is_within(self.subject.error)
        ]

    @property
    def unsure(self) -> int:
        """How many means are known less well than asked."""
        return sum(
            not running_mean.is_within(self.subject.error)
            for running_mean in self.running_means.values()
            if running_mean.count
        )

    @property
    def method(self) -> Method:
        """How it went, for the record."""
        most = max((running_mean.count for running_mean in self.running_means.values()), default=0)
        return Method(name=self.estimator.name, seconds=self.seconds, samples=most)

    def sample(self, deadline: float, stop_if_asked: Callable[[], None]) -> None:
        """Sample after sample; every key is heard once even where the time is over, and an
        interrupt leaves what there is.
        """
        began = time.perf_counter()
        try:
            with progress(self.estimator.name, self.most * len(self.running_means)) as shown:
                while (still := self.open) and not self._is_late(deadline):
                    self._round(still, shown, deadline, stop_if_asked)
        finally:
            self.seconds += time.perf_counter() - began

    def _round(
        self, still: list[Key], shown: Progress, deadline: float, stop_if_asked: Callable[[], None]
    ) -> None:
        """A batch more for the keys that have seen the fewest."""
        fewest = min(self.running_means[key].count for key in still)
        turn = [key for key in still if self.running_means[key].count == fewest]
        batch = self.subject.batches[fewest % len(self.subject.batches)]
        for key, value in self.estimator.samples(batch, turn):
            self.running_means[key].add(value)
            shown.advance(doing=f"{key.layer} {key.format}".rstrip())
            stop_if_asked()
            if self._is_late(deadline):
                return

    def _is_late(self, deadline: float) -> bool:
        return time.perf_counter() > deadline and all(
            running_mean.count for running_mean in self.running_means.values()
        )
