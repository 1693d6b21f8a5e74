"""What a training calls: its objective, functions of its caller's, and what keeps it equal to
others that train the same model.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..workload import Inputs
from ..workload.data import Batch

Objective = Callable[[nn.Module, Inputs, Any], Tensor]  # calls the model itself: `inputs(model)`
BeforeStep = Callable[[float], None]  # the share of all steps that is done


class Synchroniser:
    """Keeps the model of several processes equal; this one is for a process that trains alone."""

    stores = True  # whether this process writes the checkpoints

    def part_of(self, batch: Batch) -> tuple[Batch, float]:
        """What this process computes of a batch, and the factor of its loss."""
        return batch, 1.0

    def mean_loss(self, loss: float) -> float:
        """The loss of the whole batch, equal in all processes."""
        return loss

    def mean_gradients(self, model: nn.Module, weights: Sequence[Tensor]) -> None:
        """Make the gradients, and the model's statistics, those of the whole batch."""


@dataclass(frozen=True)
class Hooks:
    """Functions that a training calls, and how often it stores itself and watches its gradients."""

    should_stop: Callable[[], bool] = lambda: False
    before_step: BeforeStep = lambda done: None
    metric: Callable[[], float | None] = lambda: None  # asked after each epoch, before it is stored
    smaller_is_better: bool = False  # of the metric
    on_step: Callable[[Any], None] = lambda run: None  # the `Run`, after each step
    save_every_s: float | None = None  # None is SAVE_EVERY_S
    synchroniser: Synchroniser = field(default_factory=Synchroniser)
    watch_every: int = 0  # steps between two looks at the gradients' ranges; 0 is never
