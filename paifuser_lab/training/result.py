"""The result of a training."""

from __future__ import annotations

from dataclasses import dataclass

from .precision import finite_mean


@dataclass(frozen=True)
class Trained:
    """The losses of a training, and what an interrupted run had done before."""

    losses: tuple[float, ...]  # of each step
    epochs: int
    seconds: float  # of training, including earlier runs
    began_at: int = 0  # the steps that an earlier run had done
    is_kept: bool = False  # whether an earlier run had finished it
    skipped: int = 0  # the steps whose gradient overflowed in fp16
    notes: tuple[str, ...] = ()

    @property
    def first_loss(self) -> float:
        """The mean loss over the first tenth of the steps."""
        return finite_mean(self.losses[: self._tenth])

    @property
    def last_loss(self) -> float:
        """The mean loss over the last tenth of the steps."""
        return finite_mean(self.losses[-self._tenth :])

    @property
    def _tenth(self) -> int:
        return max(1, len(self.losses) // 10)
