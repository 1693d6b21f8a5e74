"""A layer that learns to compute in int8."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ..factory import quantized_layer
from ..layers.int8 import Int8Layer, Outlet
from ..layers.skeleton import with_weights
from ..layers.tensor import Int8Tensor
from .layer import LearningLayer
from .learned_ranges import LearnedRange
from .norm import Folding
from .straight_through import instead


class LearningInt8(LearningLayer):
    """Answers with what the live layer computes, to the bit; gradients are those of float
    arithmetic on the rounded numbers.

    Two cases apart, in which the float arithmetic answers: while a batch-norm that is to be folded
    in normalises by the batch, which no live layer does, and on another device than the CPU.
    """

    def __init__(
        self, layer: Any, span: LearnedRange, *, norm: nn.Module | None = None, learns: bool
    ) -> None:
        super().__init__(layer, "int8", learns=learns)
        self.span, self.norm = span, norm
        self.clamp: tuple[float, float | None] | None = None
        self._onward: list[
            LearnedRange
        ] = []  # the readers' range where they read int8; it is part of them, not of this module

    def hand_on(self, outlet: Outlet, span: LearnedRange) -> None:
        """Hand the answer on in int8, in the range that its readers learn."""
        self.clamp, self._onward = outlet.clamp, [span]

    def forward(self, given: Tensor) -> Tensor:
        live = None if self._is_loose or given.device.type != "cpu" else self.converted()
        if live is not None and not torch.is_grad_enabled():
            return _numbers(live(given))
        surrogate = self._surrogate(given).to(given.dtype)
        if live is None:
            return surrogate
        with torch.no_grad():
            value = _numbers(live(given.detach()))
        return instead(surrogate, value)

    @property
    def _is_loose(self) -> bool:
        return self.norm is not None and self.norm.training

    def _surrogate(self, given: Tensor) -> Tensor:
        """The same in float arithmetic."""
        rounded, weight, bias = self.span(given), self.rounded_weight(), self.bias
        if self.norm is None:
            made = self.product(rounded, weight, bias)
        elif self._is_loose:
            made = self.norm(self.product(rounded, weight, bias))
        else:
            folding = Folding.of(self.norm)
            made = self.product(rounded, folding.weight(weight), folding.bias(bias))
        if self.clamp is not None:
            made = made.clamp(*self.clamp)
        return self._onward[0](made) if self._onward else made

    @torch.no_grad()
    def converted(self) -> Int8Layer:
        """The int8 layer that this one is now, with the batch-norm in it."""
        numbers = self.numbers()
        bias: Tensor | None = self.bias
        if self.norm is not None:
            folding = Folding.of(self.norm)
            numbers, bias = folding.numbers(numbers), folding.bias(bias)
        made = quantized_layer(
            with_weights(self._skeleton[0], self.weight, bias), "int8", self.span.span, numbers
        )
        assert isinstance(made, Int8Layer)
        if self._onward:
            made.outlet = Outlet(self._onward[0].span, self.clamp)
        return made.train(self.training)


def _numbers(answer: Tensor) -> Tensor:
    return answer.numbers() if isinstance(answer, Int8Tensor) else answer
