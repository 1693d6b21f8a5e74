"""Learning rates: warm-up and decay by the share of steps done, and reactions to the losses so far.

A reaction is a fold over the losses: fed with the same losses it makes the same changes, so that a
resumed training needs nothing but the losses that are stored anyway. Each change says why.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from statistics import fmean, stdev
from typing import NamedTuple

LOWEST = 1 / 25  # of the learning rate, at the start of the warm-up
RISES = {"one-cycle": 0.3, "cosine": 0.0, "constant": 0.0}
WINDOW = 20  # losses that are averaged before they are compared
PATIENCE = 3  # windows without progress before the rate falls, or with progress before it rises
FALL, RISE = 0.5, 1.2
LOWEST_FACTOR, HIGHEST_FACTOR = 1 / 256, 2.0
NOISE = 2.0  # standard errors of a difference of means that count as noise


class RateChange(NamedTuple):
    """From this step on the scheduled rate is multiplied by `factor`."""

    step: int
    factor: float
    why: str


def scheduled_rate(schedule: str, highest: float, warm_up: float | None, progress: float) -> float:
    """The rate after this share (0–1) of the steps: it rises in the warm-up, then falls by half a
    cosine, or stays if the schedule is constant.
    """
    rise = RISES[schedule] if warm_up is None else warm_up
    if progress < rise:
        return highest * (LOWEST + (1 - LOWEST) * progress / rise)
    if schedule == "constant":
        return highest
    return highest * (1 + math.cos(math.pi * min(1.0, (progress - rise) / (1 - rise)))) / 2


@dataclass
class Plateau:
    """Halves the rate when the mean loss of several windows has not fallen below the best."""

    window: int = WINDOW
    patience: int = PATIENCE
    factor: float = 1.0
    changes: list[RateChange] = field(default_factory=list)
    _losses: list[float] = field(default_factory=list)
    _seen: int = 0
    _best: float = math.inf
    _idle: int = 0

    def see(self, loss: float) -> None:
        """React to the next loss."""
        self._seen += 1
        self._losses.append(loss)
        if len(self._losses) == self.window:
            self._compare([value for value in self._losses if math.isfinite(value)])
            self._losses = []

    def _compare(self, losses: Sequence[float]) -> None:
        mean = fmean(losses) if losses else math.inf
        self._idle = 0 if mean < self._best else self._idle + 1
        self._best = min(self._best, mean)
        if self._idle >= self.patience:
            self._idle = 0
            steps = self.patience * self.window
            self._change(FALL, f"the mean loss has not fallen below {self._best:.4g} in {steps} "
                         "steps")  # fmt: skip

    def _change(self, by: float, why: str) -> None:
        factor = min(HIGHEST_FACTOR, max(LOWEST_FACTOR, self.factor * by))
        if factor != self.factor:
            self.factor = factor
            self.changes.append(RateChange(self._seen, factor, why))


@dataclass
class Adaptive(Plateau):
    """Halves the rate at once when the loss rises beyond its noise or is not finite, and after
    some windows without progress; raises it a little while the loss falls steadily.
    """

    _before: tuple[float, float] | None = None  # mean and standard error of the last window
    _falling: int = 0

    def see(self, loss: float) -> None:
        super().see(loss)
        if not math.isfinite(loss):
            self._before, self._falling, self._losses = None, 0, []
            self._change(FALL, f"the loss became {loss}")

    def _compare(self, losses: Sequence[float]) -> None:
        if len(losses) < 2:  # which have no noise to compare with
            return
        mean, error = fmean(losses), stdev(losses) / math.sqrt(len(losses))
        before, self._before = self._before, (mean, error)
        if before is None:
            return
        change = mean - before[0]
        noise = NOISE * math.hypot(error, before[1])
        self._falling = self._falling + 1 if change < -noise else 0
        self._idle = self._idle + 1 if abs(change) <= noise else 0
        steps = self.patience * self.window
        if change > noise:
            self._change(FALL, f"the mean loss rose from {before[0]:.4g} to {mean:.4g}")
        elif self._idle >= self.patience:
            self._idle = 0
            self._change(FALL, f"the mean loss stayed at {mean:.4g} for {steps} steps")
        elif self._falling >= self.patience:
            self._falling = 0
            self._change(RISE, f"the mean loss fell for {steps} steps, to {mean:.4g}")


REACTIONS: dict[str, type[Plateau]] = {"plateau": Plateau, "adaptive": Adaptive}


def reaction(name: str | None, losses: Iterable[float] = (), window: int = WINDOW) -> Plateau:
    """The named reaction after these losses; None never changes the rate."""
    made = REACTIONS[name](window) if name else Plateau(window, patience=2**62)
    for loss in losses:
        made.see(loss)
    return made
