"""Weights and images with their channels last in memory, which convolutions compute faster.

Weights, gradients and the optimizer's state move together: fused optimizers walk raw storage, and
would combine the wrong numbers if only some of them moved.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.optim import Optimizer
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from .base import MAIN_OPTIMIZERS, Call, Parts, Switch

LAST = torch.channels_last
VECTOR = 16  # numbers of fp32 in the widest vector


class ReshapingViews(TorchFunctionMode):
    """While active, a view that the memory format does not allow is a reshape, which copies."""

    def __torch_function__(
        self,
        function: Callable[..., Any],
        types: Any,
        args: Sequence[Any] = (),
        kwargs: Mapping[str, Any] | None = None,
    ) -> Any:
        if function is not Tensor.view:
            return function(*args, **(kwargs or {}))
        try:
            return function(*args, **(kwargs or {}))
        except RuntimeError:
            return Tensor.reshape(*args, **(kwargs or {}))


class ChannelsLast(Switch):
    """Convolutions' weights and the model's images in channels-last; outputs leave contiguous."""

    name = "channels_last"

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.strides: dict[nn.Parameter, tuple[int, ...]] = {}
        self.reshaping: set[type[nn.Module]] = set()

    def obstacle(self, parts: Parts) -> str:
        layers = [layer for model in parts.models for layer in model.modules()]
        convolutions = [
            layer for layer in layers if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
        ]
        if not convolutions:
            return "the model has no two-dimensional convolution"
        if all(is_last(layer.weight) for layer in convolutions):
            return "the weights are channels-last already"
        if parts.unknown:
            return f"the state of {parts.unknown[0]} cannot be moved safely"
        if parts.is_compiled:
            return "the loop compiles its model, which other strides would compile anew"
        if any(_is_overrun(layer) for layer in convolutions):
            return (
                "it has a strided 1×1 convolution of few channels, whose gradient oneDNN writes "
                "past its end in channels-last"
            )
        return ""

    def turn_on(self, parts: Parts) -> None:
        weights = [
            weight
            for model in parts.models
            for weight in model.parameters()
            if weight.dim() == 4 and not is_last(weight)
        ]
        self.strides = {weight: weight.stride() for weight in weights}
        for weight in weights:
            _move(weight, parts, lambda value: value.to(memory_format=LAST))

    def turn_off(self, parts: Parts) -> None:
        for weight, strides in self.strides.items():
            _move(weight, parts, lambda value, strides=strides: _restrided(value, strides))  # type: ignore[misc]
        self.strides = {}

    def before_step(self, optimizer: Optimizer) -> bool:
        """Gradients and state that the loop has set since, as by `load_state_dict`, move too."""
        if type(optimizer) not in MAIN_OPTIMIZERS:
            return True
        for group in optimizer.param_groups:
            for weight in group["params"]:
                if weight in self.strides:
                    _follow(weight, optimizer)
        return True

    def wrap(self, model: nn.Module, call: Call) -> Call:
        def with_images_last(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            args, kwargs = pytree.tree_map_only(Tensor, _to_last, (args, kwargs))
            if type(model) in self.reshaping:
                with ReshapingViews():
                    output = call(args, kwargs)
            else:
                output = call(args, kwargs)
            return pytree.tree_map_only(Tensor, _to_contiguous, output)

        return with_images_last

    def wrap_evaluation(self, model: nn.Module, call: Call) -> Call:
        return self.wrap(model, call)  # the weights are channels-last then, too

    def reshape_views(self, model: nn.Module, error: Exception) -> bool:
        """Whether the call failed on a view that a reshape could take the place of: from now on it
        does.
        """
        if type(model) in self.reshaping or "view size is not compatible" not in str(error):
            return False
        self.reshaping.add(type(model))
        return True

    def why(self) -> str:
        return "views of images are reshaped" if self.reshaping else ""


def is_last(value: Tensor) -> bool:
    """Whether a tensor is channels-last only; for a 1×1 kernel both formats are the same."""
    return value.is_contiguous(memory_format=LAST) and not value.is_contiguous()


def _move(weight: nn.Parameter, parts: Parts, moved: Callable[[Tensor], Tensor]) -> None:
    """Move a weight, its gradient and its state; the Parameter stays the same object."""
    weight.data = moved(weight.data)
    if weight.grad is not None:
        weight.grad = moved(weight.grad)
    for optimizer in parts.optimizers:
        if type(optimizer) not in MAIN_OPTIMIZERS or weight not in optimizer.state:
            continue
        state = optimizer.state[weight]
        for key, value in state.items():
            if isinstance(value, Tensor) and value.shape == weight.shape:
                state[key] = moved(value)


def _follow(weight: nn.Parameter, optimizer: Optimizer) -> None:
    """Give a weight's gradient and state its strides, where they have others."""
    strides = weight.stride()
    if weight.grad is not None and not _is_alike(weight.grad, weight):
        weight.grad = _restrided(weight.grad, strides)
    state = optimizer.state.get(weight, {})
    for key, value in state.items():
        is_like = isinstance(value, Tensor) and value.shape == weight.shape
        if is_like and not _is_alike(value, weight):
            state[key] = _restrided(value, strides)


def _is_alike(value: Tensor, weight: Tensor) -> bool:
    """Whether a tensor has a weight's order in memory; where a size is 1, strides say nothing."""
    strides = zip(value.stride(), weight.stride(), weight.shape, strict=True)
    return all(own == other for own, other, size in strides if size > 1)


def _restrided(value: Tensor, strides: tuple[int, ...]) -> Tensor:
    empty = torch.empty_strided(value.shape, strides, dtype=value.dtype, device=value.device)
    return empty.copy_(value)


def _to_last(value: Tensor) -> Tensor:
    # `contiguous` would leave images of one channel as they are
    is_image = value.dim() == 4 and value.is_floating_point()
    return value.to(memory_format=LAST) if is_image else value


def _to_contiguous(value: Tensor) -> Tensor:
    return value.contiguous() if value.dim() == 4 and is_last(value) else value


def _is_overrun(layer: nn.Conv2d | nn.ConvTranspose2d) -> bool:
    is_strided = any(step != 1 for step in layer.stride)
    return (
        is_strided
        and layer.weight.device.type == "cpu"
        and tuple(layer.weight.shape[2:]) == (1, 1)
        and layer.weight.shape[1] < VECTOR
    )
