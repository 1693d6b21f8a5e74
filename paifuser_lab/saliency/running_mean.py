"""A mean that grows sample by sample, with its standard error; an earlier estimate can be taken up
again.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from ..records import Estimate

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
