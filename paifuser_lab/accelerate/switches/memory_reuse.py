"""Activation layers that write into their input, so that one buffer less is held for backward.

Whether nobody else reads that input is not guessed: a copy of the model takes a training step on
real inputs with them and without, and outputs and gradients have to be equal to the bit.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping
from typing import Any
from weakref import WeakSet

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...errors import first_line
from ...model.tensors import tensors_in
from .base import Call, Course, Parts, Switch

IN_PLACE = (nn.ReLU, nn.ReLU6, nn.LeakyReLU)


class MemoryReuse(Switch):
    """`inplace=True` in the activation layers of models where that is proven to change nothing."""

    name = feature = "memory_reuse"
    saves_memory = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.layers: list[Any] = []
        self.proven: WeakSet[nn.Module] = WeakSet()

    def obstacle(self, parts: Parts) -> str:
        if "checkpointing" in self.options["switches"]:
            return "blocks that are computed again need their inputs"
        if not any(_activations(model) for model in parts.models):
            return "no activation layer could write into its input"
        return "the loop compiles its model, which plans memory itself" if parts.is_compiled else ""

    @property
    def is_ready(self) -> bool:
        return bool(self.proven)

    def is_pending(self, course: Course) -> bool:
        return not self.proven and any(map(_activations, course.examples))

    def tend(self, course: Course, *, is_on: bool) -> str:
        """Prove each model once."""
        unproven = (item for item in course.examples.items() if item[0] not in self.proven)
        whys = (self.prove(model, *example, course.copies) for model, example in unproven)
        return next(filter(None, whys), "")

    def forget(self) -> None:
        self.proven.clear()

    def prove(
        self,
        model: nn.Module,
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        calls: Callable[[nn.Module], Call],
    ) -> str:
        """Why layers cannot write into their inputs, by a copy called as `calls` says; or ''."""
        if not _activations(model):
            return ""
        try:
            expected = _outcome(model, args, kwargs, calls, in_place=False)
            actual = _outcome(model, args, kwargs, calls, in_place=True)
        except Exception as error:
            return f"a layer's input is needed again ({first_line(error)[:80]})"
        if len(expected) != len(actual) or not all(map(torch.equal, expected, actual)):
            return "a layer's input is read again, so that results would change"
        self.proven.add(model)
        return ""

    def turn_on(self, parts: Parts) -> None:
        self.layers = [
            layer for model in parts.models if model in self.proven for layer in _activations(model)
        ]
        for layer in self.layers:
            layer.inplace = True

    def turn_off(self, parts: Parts) -> None:
        for layer in self.layers:
            layer.inplace = False
        self.layers = []


def _activations(model: nn.Module) -> list[Any]:
    return [layer for layer in model.modules() if isinstance(layer, IN_PLACE) and not layer.inplace]


def _outcome(
    model: nn.Module,
    args: tuple[Any, ...],
    kwargs: dict[str, Any],
    calls: Callable[[nn.Module], Call],
    *,
    in_place: bool,
) -> list[Tensor]:
    """Outputs, gradients and inputs after a copy's training step, with the same random numbers."""
    twin = copy.deepcopy(model)
    for layer in _activations(twin):
        layer.inplace = in_place
    args, kwargs = pytree.tree_map_only(Tensor, lambda value: value.clone(), (args, kwargs))
    with torch.random.fork_rng(), torch.enable_grad():
        torch.manual_seed(0)
        outputs = [leaf for leaf in tensors_in(calls(twin)(args, kwargs)) if leaf.requires_grad]
        total = torch.stack([output.float().square().mean() for output in outputs]).sum()
        weights = [weight for weight in twin.parameters() if weight.requires_grad]
        found = torch.autograd.grad(total, weights, allow_unused=True)
    gradients = [gradient for gradient in found if gradient is not None]
    return [value.detach() for value in (*outputs, *tensors_in((args, kwargs)))] + gradients
