"""A layer that does, when asked, what follows it too: same weights, same names, same place in the model.

Called as ever it answers as ever. Where somebody differentiates, compiles, exports, or nothing here can do it at once, it is composed
of torch's operators. Its packed weight is made when first needed and again when the weight changes; it is in no file and no copy. A
change that torch does not count, by an optimizer with `fused=True` or through `weight.data`, is seen since a call with gradients or `train()`
makes it anew; not one that comes after a later call without them.
"""

from __future__ import annotations

from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from . import cuda, onednn
from .activation import ACTIVATIONS, NONE
from .composing import is_composed, is_plain, wants_gradient

MADE = ("_packed", "_ways")  # what a fused layer has beside its weights, in no copy
LAYERS: dict[type[nn.Module], str] = {nn.Linear: "linear", nn.Conv2d: "convolution"}


def way_of(layer: Any, *, has_residual: bool, activation: str) -> str:
    """What does a layer and what follows it at once; '' where nothing does."""
    weight = layer.weight
    if weight.device.type == "cpu":
        return "oneDNN" if onednn.takes(layer, weight.dtype, has_residual=has_residual, activation=activation) else ""
    kernel = cuda.kernel_for(layer, weight.dtype, has_residual=has_residual, activation=activation) if weight.is_cuda else ""
    return f"CUDA {kernel}" if kernel else ""


def answer_shape(layer: Any, x: Tensor) -> tuple[int, ...]:
    """The shape of what a layer answers."""
    if not isinstance(layer, nn.Conv2d):
        return (*x.shape[:-1], layer.weight.shape[0])
    geometry: Any = zip(x.shape[2:], layer.padding, layer.dilation, layer.kernel_size, layer.stride, strict=True)
    sides = ((size + 2 * pad - gap * (side - 1) - 1) // step + 1 for size, pad, gap, side, step in geometry)
    return (x.shape[0], layer.weight.shape[0], *sides)


class FusedLayer(nn.Module):
    """What a fused layer adds to the class of the layer."""

    apart: ClassVar[type[nn.Module]]
    weight: Tensor
    bias: Any

    def forward(self, x: Tensor, residual: Tensor | None = None, activation: str = NONE) -> Tensor:
        """activation(layer(x) + residual)."""
        way = "" if is_composed() else self._way(residual is not None, activation)
        if wants_gradient(x, residual, self.weight, self.bias):
            self._forget()  # what comes of it may change the weight uncounted
            return self.composed(x, residual, activation)
        if not way or not self._is_free(x, residual):
            return self.composed(x, residual, activation)
        if way != "oneDNN":
            return cuda.run(self, self.weight, x, residual, activation)
        return onednn.run(self, self._packed_for(x), x, residual, activation)

    def _is_free(self, x: Tensor, residual: Tensor | None) -> bool:
        """Whether nothing asks for torch's own operators: autocast, other formats or shapes, tensors of another kind."""
        weight = self.weight
        return (
            is_plain(x, residual, weight)
            and not weight.is_inference()  # whose changes torch does not count
            and x.dtype == weight.dtype
            and x.device == weight.device
            and not torch.is_autocast_enabled(x.device.type)
            and x.numel() > 0
            and x.dim() == (4 if weight.dim() == 4 else max(2, x.dim()))
            and (residual is None or (residual.dtype == x.dtype and residual.shape == answer_shape(self, x)))
        )

    def _way(self, has_residual: bool, activation: str) -> str:
        key = has_residual, activation, self.weight.dtype, self.weight.device
        known: dict[Any, str] = self.__dict__.setdefault("_ways", {})
        if key not in known:
            known[key] = way_of(self, has_residual=has_residual, activation=activation)
        return known[key]

    def composed(self, x: Tensor, residual: Tensor | None, activation: str) -> Tensor:
        """The same of torch's operators."""
        made: Tensor = super().forward(x)
        return ACTIVATIONS[activation].compose(made if residual is None else made + residual)

    def _packed_for(self, x: Tensor) -> Tensor:
        weight = self.weight
        state = weight._version, weight.data_ptr()
        known = self.__dict__.get("_packed")
        if known is None or known[0] is not weight or known[1] != state:
            known = weight, state, onednn.packed(self, weight.detach(), x)
            self.__dict__["_packed"] = known
        packed: Tensor = known[2]
        return packed

    def train(self, mode: bool = True) -> Self:
        """As ever; what was packed is made anew after a training."""
        if mode or self.training:
            self._forget()
        return super().train(mode)

    def _forget(self) -> None:
        if not torch.compiler.is_compiling():
            self.__dict__.pop("_packed", None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in MADE}


class FusedLinear(FusedLayer, nn.Linear):
    """A linear layer, the residual and the activation after it."""

    apart = nn.Linear


class FusedConv2d(FusedLayer, nn.Conv2d):
    """A convolution, the residual and the activation after it."""

    apart = nn.Conv2d


FUSED: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: FusedLinear, nn.Conv2d: FusedConv2d}
APART = {fused: apart for apart, fused in FUSED.items()}


def make_fused(layer: nn.Module) -> None:
    """Let a layer do what follows it; it stays the same object with the same weights."""
    layer.__class__ = FUSED.get(type(layer), type(layer))


def make_apart(layer: nn.Module) -> None:
    """Take that back."""
    layer.__class__ = APART.get(type(layer), type(layer))
    for name in MADE:
        layer.__dict__.pop(name, None)


def packed_bytes(model: nn.Module) -> int:
    """What the packed weights of a model's fused layers take, the originals not counted."""
    on_cpu = [one for one in model.modules() if isinstance(one, FusedLayer) and one.weight.device.type == "cpu"]
    return sum(one.weight.nbytes for one in on_cpu)


def kind_of(layer: nn.Module) -> str:
    """What a layer that may be fused is called; '' for another."""
    kind = LAYERS.get(APART.get(type(layer), type(layer)), "")
    if not isinstance(layer, nn.Conv2d) or not kind:
        return kind
    if layer.groups > 1 and layer.groups == layer.in_channels:
        return "depthwise convolution"
    return "1×1 convolution" if set(layer.kernel_size) == {1} else kind


def obstacle(layer: nn.Module) -> str:
    """Why a layer is left as it is; '' where it need not be."""
    if "weight" not in layer._parameters:
        return "its weight is computed at each call"
    if layer._forward_pre_hooks:
        return "a hook changes what it is given, such as to another number format"
    if isinstance(layer, nn.Conv2d) and (layer.padding_mode != "zeros" or isinstance(layer.padding, str)):
        return "it pads otherwise than with a number of zeros"
    return ""
