"""What a training has seen so far, and what follows from it: the rate's factor, the precision, and
whether to stop early. All of it is a function of the losses, so that a resumed training reacts as
an uninterrupted one does.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

from ..records import counted
from .history import History, StepFacts
from .plan import TrainPlan
from .precision import PrecisionSchedule, finite_mean
from .rates import reaction


class Course:
    """The losses and figures of the steps done, and the reactions to them."""

    def __init__(
        self,
        plan: TrainPlan,
        steps: int,
        losses: Iterable[float] = (),
        history: History | None = None,
        *,
        smaller_is_better: bool = False,
    ) -> None:
        self.plan, self.losses = plan, list(losses)
        self.history = history or History()
        self.smaller_is_better = smaller_is_better  # of the metric
        self.reaction = reaction(plan.react, self.losses, plan.react_window)
        self.precision = PrecisionSchedule(plan, steps)
        for loss in self.losses:
            self.precision.see(loss)

    def append(self, loss: float, facts: StepFacts) -> None:
        """React to the next step."""
        self.losses.append(loss)
        self.history.rows.append(facts)
        self.reaction.see(loss)
        self.precision.see(loss)

    def end_epoch(self, metric: float | None = None) -> None:
        """Note that an epoch is over, and the metric after it."""
        self.history.epoch_ends.append(len(self.losses))
        if metric is not None:
            worst = math.inf if self.smaller_is_better else -math.inf
            self.history.metrics.append(metric if math.isfinite(metric) else worst)

    @property
    def is_idle(self) -> bool:
        """Whether as many epochs as the plan waits for brought no new lowest mean loss, or no
        better metric.
        """
        if self.plan.patience is None or not self.history.epoch_ends:
            return False
        ends = self.history.epoch_ends
        means = [
            finite_mean(self.losses[start:end])
            for start, end in zip([0, *ends], ends, strict=False)
        ]
        sign = 1 if self.smaller_is_better else -1
        costs = means if self.plan.stop_on == "loss" else [sign * m for m in self.history.metrics]
        return len(costs) - 1 - costs.index(min(costs)) >= self.plan.patience

    @property
    def marks(self) -> list[tuple[int, str]]:
        """What was switched, after how many steps, and why, in order."""
        rates = [
            (change.step, f"rate × {change.factor:g}: {change.why}")
            for change in self.reaction.changes
        ]
        epochs = counted(self.plan.patience or 0, "epoch")
        is_loss = self.plan.stop_on == "loss"
        moved = "fallen" if is_loss or self.smaller_is_better else "risen"
        words = f"the {'mean loss' if is_loss else 'metric'} has not {moved}"
        words = f"stopped early: {words} in {epochs}"
        is_early = self.is_idle and len(self.history.epoch_ends) < self.plan.epochs
        ends = [(len(self.losses), words)] if is_early else []
        return sorted([*self.precision.marks, *rates, *ends], key=lambda mark: mark[0])


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
