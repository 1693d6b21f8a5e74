"""The mean of each channel's values over batches, and the standard error of each."""

from __future__ import annotations

import torch
from torch import Tensor


class Means:
    """Grows batch by batch; in double precision."""

    def __init__(self) -> None:
        self.count = 0
        self.mean = torch.zeros(0)
        self.squares = torch.zeros(0)  # squared distances from the mean, added up

    def add(self, values: Tensor) -> None:
        """One batch more."""
        values = values.detach().double().cpu()
        if not self.count:
            self.mean, self.squares = torch.zeros_like(values), torch.zeros_like(values)
        self.count += 1
        before = values - self.mean
        self.mean = self.mean + before / self.count
        self.squares = self.squares + before * (values - self.mean)

    @property
    def is_finite(self) -> bool:
        """Whether every mean is a number."""
        return bool(self.mean.isfinite().all())

    @property
    def values(self) -> tuple[float, ...]:
        """The means, without their sign."""
        return tuple(self.mean.abs().tolist())

    @property
    def errors(self) -> tuple[float, ...]:
        """The standard errors of the means; none from a single batch."""
        if self.count < 2:
            return ()
        return tuple((self.squares / (self.count * (self.count - 1))).sqrt().tolist())
