"""What a training calls: its objective, and functions of its caller's."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from torch import Tensor, nn

from ..workload import Inputs

Objective = Callable[[nn.Module, Inputs, Any], Tensor]  # calls the model itself: `inputs(model)`
OnEpoch = Callable[[int, int, float], None]  # epoch, epochs, mean loss
BeforeStep = Callable[[float], None]  # the share of all steps that is done


@dataclass(frozen=True)
class Hooks:
    """Functions that a training calls, and how often it stores itself and watches its gradients."""

    should_stop: Callable[[], bool] = lambda: False
    on_epoch: OnEpoch = lambda epoch, epochs, loss: None
    before_step: BeforeStep = lambda done: None
    on_step: Callable[[Any], None] = lambda run: None  # the `Run`, after each step
    save_every_s: float | None = None  # None is SAVE_EVERY_S
    watch_every: int = 0  # steps between two looks at the gradients' ranges; 0 is never
