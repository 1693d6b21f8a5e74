"""Gradients that are scaled inside a model and nowhere else, and whether that holds for a loss.

A gradient is multiplied where it enters the model, at its outputs, and divided where it leaves, at
its weights. A loss that reaches the weights on another way would get wrong gradients.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor

REENTRANT = "CheckpointFunctionBackward"  # which runs a backward pass of its own on plain weights


class Scaled(torch.autograd.Function):
    """Passes a value on, and its gradient times a factor."""

    @staticmethod
    def forward(ctx: Any, value: Tensor, factor: float) -> Tensor:
        ctx.factor = factor
        return value.view_as(value)

    @staticmethod
    def backward(ctx: Any, *gradients: Tensor) -> tuple[Tensor, None]:
        return gradients[0] * ctx.factor, None


def scaled(value: Tensor, factor: float) -> Tensor:
    """The value itself; its gradient is multiplied by a factor."""
    output: Tensor = Scaled.apply(value, factor)  # type: ignore[no-untyped-call]
    return output


def is_misscaled(losses: Iterable[Tensor], *, is_whole: bool) -> bool:
    """Whether a gradient of these losses would reach a leaf with another scale than its own. Unless
    the whole graph is walked, it is followed from the losses to the models' outputs only.
    """
    for node, factor in _walk(losses, is_whole=is_whole):
        is_end = node.name() == REENTRANT or node.name().endswith("AccumulateGrad")
        if factor < 1 or (is_end and factor != 1):
            return True
    return False


def unscale(losses: Iterable[Tensor]) -> None:
    """Let the backward pass of these losses scale nothing."""
    for node, _ in _walk(losses, is_whole=True):
        if _is_scaled(node):
            node.factor = 1.0


def _walk(losses: Iterable[Tensor], *, is_whole: bool) -> Iterator[tuple[Any, float]]:
    """The nodes of a graph with the factor that gradients come to them with, once for each."""
    waiting: list[tuple[Any, float]] = [(loss.grad_fn, 1.0) for loss in losses]
    seen = set(waiting)
    while waiting:
        node, factor = waiting.pop()
        if node is None:
            continue
        yield node, factor
        if _is_scaled(node):
            factor *= node.factor
        if factor > 1 and not is_whole:
            continue
        following = {(other, factor) for other, _ in node.next_functions} - seen
        seen |= following
        waiting += following


def _is_scaled(node: Any) -> bool:
    return getattr(node, "_forward_cls", None) is Scaled
