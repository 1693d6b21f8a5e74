"""Images with their channels last in memory, which convolutions compute faster.

Weights, gradients and the optimizer's state stay as they are, so that the loop may view them as
ever: a convolution brings its weight into the order of its images by itself.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree
from torch.utils.hooks import unserializable_hook

from ...model.tensors import is_channels_last
from ...training.strided_pointwise import is_overrun
from .base import Call, Parts, Refusal, Switch, is_reachable, kept_tensors

LAST = torch.channels_last


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
    """The model's images in channels-last; outputs leave contiguous."""

    name = "channels_last"
    feature = "graph_optimization"
    is_combined = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self._handles: list[Any] = []
        self.reshaping: set[type[nn.Module]] = set()

    def obstacle(self, parts: Parts) -> str:
        layers = [layer for model in parts.models for layer in model.modules()]
        convolutions = [
            layer for layer in layers if isinstance(layer, nn.Conv2d | nn.ConvTranspose2d)
        ]
        if not convolutions:
            return "the model has no two-dimensional convolution"
        if all(is_channels_last(layer.weight) for layer in convolutions):
            return "the weights are channels-last already"
        if parts.is_compiled:
            return "the loop compiles its model, which other strides would compile anew"
        if any(is_overrun(layer.weight, layer.stride) for layer in convolutions):
            return (
                "it has a strided 1×1 convolution of few channels, whose gradient oneDNN writes "
                "past its end in channels-last"
            )
        if any(map(_is_looked_into, layers)):
            return "a layer has hooks, which would see images in another order of memory"
        return ""

    def turn_on(self, parts: Parts) -> None:
        """Let `autograd.grad` give gradients in their weights' order, as `backward` does."""
        self._handles = [
            weight.register_hook(_like_its_weight)  # type: ignore[no-untyped-call]
            for model in parts.models
            for weight in model.parameters()
            if weight.dim() == 4 and weight.requires_grad and weight.is_contiguous()
        ]

    def turn_off(self, parts: Parts) -> None:
        for handle in self._handles:
            handle.remove()
        self._handles = []

    def wrap(self, model: nn.Module, call: Call) -> Call:
        is_new = True

        def with_images_last(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
            nonlocal is_new
            args, kwargs = pytree.tree_map_only(Tensor, _to_last, (args, kwargs))
            if type(model) in self.reshaping:
                with ReshapingViews():
                    output = call(args, kwargs)
            else:
                output = call(args, kwargs)
            if not is_reachable(output):
                raise Refusal(self.label, "the output is a class whose tensors cannot be reached")
            for name, value in kept_tensors(model) if is_new else ():
                if is_channels_last(value):
                    raise Refusal(self.label, f"the model keeps {name} in another order of memory")
            is_new = False
            return pytree.tree_map_only(Tensor, _to_contiguous, output)

        return with_images_last

    def recover(self, model: nn.Module, error: Exception) -> bool:
        """Where a view failed that could be a reshape, it is one from now on."""
        if type(model) in self.reshaping or "view size is not compatible" not in str(error):
            return False
        self.reshaping.add(type(model))
        return True

    def why(self) -> str:
        return "views of images are reshaped" if self.reshaping else ""


def _is_looked_into(layer: nn.Module) -> bool:
    return bool(layer._forward_hooks or layer._backward_hooks or layer._backward_pre_hooks)


@unserializable_hook  # type: ignore[untyped-decorator]
def _like_its_weight(gradient: Tensor) -> Tensor:
    return gradient.contiguous()


def _to_last(value: Tensor) -> Tensor:
    # `contiguous` would leave images of one channel as they are
    is_image = value.dim() == 4 and value.is_floating_point()
    return value.to(memory_format=LAST) if is_image else value


def _to_contiguous(value: Tensor) -> Tensor:
    return value.contiguous() if is_channels_last(value) else value
