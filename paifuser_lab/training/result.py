"""What came of a training."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import fmean


@dataclass(frozen=True)
class Trained:
    """How the loss went, and how much of it was done before by a run that ended early."""

    losses: tuple[float, ...]  # of each step
    epochs: int
    seconds: float  # of training, those of earlier runs with it
    began_at: int = 0  # steps that an earlier run had done
    is_kept: bool = False  # nothing was left to be done
    skipped: int = 0  # steps whose gradient was past fp16
    notes: tuple[str, ...] = ()

    @property
    def first_loss(self) -> float:
        """The mean over the first tenth of the steps."""
        return fmean(self.losses[: self._tenth])

    @property
    def last_loss(self) -> float:
        """The mean over the last tenth of the steps."""
        return fmean(self.losses[-self._tenth :])

    @property
    def _tenth(self) -> int:
        return max(1, len(self.losses) // 10)
