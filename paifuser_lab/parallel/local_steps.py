"""Local steps: each rank trains by itself, and every so many steps the weights are averaged.

What is averaged is how far each rank has come since the last time: differences can be sent in int8
with little loss, weights cannot. At first it is averaged after steps 1, 2, 4, 8 …, since ranks
drift apart fastest then. Statistics such as those of batch-norm are averaged as they are.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from .exchange import CompressedMean, Exchange


class LocalSteps:
    """The weights of one model, averaged every `every` steps."""

    def __init__(
        self, model: nn.Module, exchange: Exchange, every: int, *, is_compressed: bool
    ) -> None:
        self.exchange, self.every, self.steps = exchange, every, 0
        self.weights = {
            name: weight for name, weight in model.named_parameters() if weight.requires_grad
        }
        self.statistics = [
            buffer for _, buffer in model.named_buffers() if buffer.is_floating_point()
        ]
        exchange.from_first([tensor.data for tensor in (*model.parameters(), *model.buffers())])
        self.anchor = self._flat()
        self.compressed = (
            CompressedMean(exchange, self.anchor.numel(), self.anchor.device)
            if is_compressed
            else None
        )

    @property
    def is_due(self) -> bool:
        """Whether the weights are averaged after this many steps."""
        if self.steps < self.every:
            return self.steps > 0 and self.steps & (self.steps - 1) == 0
        return self.steps % self.every == 0

    def after_step(self) -> None:
        """Count a step, and average if it is time."""
        self.steps += 1
        if self.is_due:
            self.average()

    @torch.no_grad()
    def average(self, *, is_exact: bool = False) -> None:
        """Average the weights over the ranks; raises on all of them, before anything is exchanged,
        if one has a weight that is not finite or has taken more steps than another.
        """
        difference = self._flat() - self.anchor
        is_bad = not bool(difference.isfinite().all())
        self.exchange.check_finite(self._first_bad() if is_bad else None, "A weight is", self.steps)
        use = self.exchange.mean if is_exact or self.compressed is None else self.compressed
        self.anchor += use(difference)
        self.exchange.traffic.exchanges += 1
        parts = torch.split(self.anchor, [weight.numel() for weight in self.weights.values()])
        for weight, part in zip(self.weights.values(), parts, strict=True):
            weight.copy_(part.view(weight.shape))
        for buffer in self.statistics:
            buffer.copy_(self.exchange.mean(buffer.detach().clone()))

    def state(self) -> dict[str, Tensor]:
        """What the next steps depend on besides weights and optimizer, as tensors."""
        state = {"anchor": self.anchor.clone(), "steps": torch.tensor(self.steps)}
        if self.compressed is not None:
            state["lost"] = self.compressed.lost.clone()
            state["lost_of_mean"] = self.compressed.lost_of_mean.clone()
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from an earlier state of as many ranks."""
        self.anchor.copy_(state["anchor"])
        self.steps = int(state["steps"])
        if self.compressed is not None:
            self.compressed.lost.copy_(state["lost"])
            self.compressed.lost_of_mean.copy_(state["lost_of_mean"])

    def rebase(self, steps: int) -> None:
        """Begin anew from the weights as they are, equal on all ranks, after so many steps."""
        self.anchor.copy_(self._flat())
        self.steps = steps

    def _flat(self) -> Tensor:
        return torch.cat([weight.detach().reshape(-1).float() for weight in self.weights.values()])

    def _first_bad(self) -> str:
        return next(
            name for name, weight in self.weights.items() if not bool(weight.isfinite().all())
        )
