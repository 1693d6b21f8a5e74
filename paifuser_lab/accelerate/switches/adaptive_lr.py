"""A learning rate that reacts to the losses so far, on top of what the loop sets."""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Any

from torch.optim import Optimizer

from ...training.rates import reaction
from .base import Parts, Switch

logger = logging.getLogger(__name__)


class AdaptiveRate(Switch):
    """During a step the rate is the loop's times a factor; the loop sees its own rate."""

    name = feature = "adaptive_lr"
    is_of_calls = False
    is_exact = False
    is_judged = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.reaction = reaction("adaptive")
        self._before: dict[Optimizer, list[Any]] = {}

    def turn_off(self, parts: Parts) -> None:
        for optimizer in list(self._before):
            self.after_step(optimizer)

    def before_step(self, optimizer: Optimizer) -> bool:
        self.after_step(optimizer)  # a step before that has raised
        self._before[optimizer] = [group["lr"] for group in optimizer.param_groups]
        for group in optimizer.param_groups:
            group["lr"] = group["lr"] * self.reaction.factor
        return True

    def after_step(self, optimizer: Optimizer) -> None:
        rates = self._before.pop(optimizer, [])
        for group, rate in zip(optimizer.param_groups, rates, strict=False):
            group["lr"] = rate

    def note_loss(self, loss: float) -> None:
        count = len(self.reaction.changes)
        self.reaction.see(loss)
        for change in self.reaction.changes[count:]:
            logger.info("adaptive_lr: rate × %g since %s", change.factor, change.why)

    def why(self) -> str:
        changes = self.reaction.changes
        if not changes:
            return "the loop's own rate; the losses call for no change"
        last = changes[-1]
        return f"the loop's rate × {last.factor:.3g} since loss {last.step}: {last.why}"
