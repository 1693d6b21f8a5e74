"""A layer that can also compute the sum and activation after it: same weights, same names, same
site in the model.

A plain call outputs what the unfused layer outputs. Under autograd, compilation, export, or where
no backend supports the call, torch's own operators run. The weight is packed at the first call that
needs it, again when the weight changes, and is neither pickled nor copied. torch does not count
changes by an optimizer with `fused=True` or through `weight.data`: a call with gradients or
`train()` drops the packed weight, so those are seen unless they come after a later call without
gradients.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, ClassVar, Self

import torch
from torch import Tensor, nn

from .activation import ACTIVATIONS, NONE, Bound
from .backends import Backend, backends_for
from .fallback import PLAIN, is_composed, is_plain, wants_gradient

MADE = ("_packed", "_backends", "_ready")  # the caches that a fused layer gains, in no copy
CHOSEN = "_backend_chosen"
GEOMETRY = ("stride", "padding", "dilation", "groups", "padding_mode")
MOST_READY = 16  # bound calls that are cached per layer
LAYERS: dict[type[nn.Module], str] = {nn.Linear: "linear", nn.Conv2d: "convolution"}


@dataclass(frozen=True, slots=True)
class Ready:
    """A call bound for inputs of one kind, and the weight's state that it is valid for."""

    weight: Tensor
    version: int
    pointer: int
    bias: Tensor | None
    shape: tuple[int, ...]
    call: Bound


def width_of(layer: Any, x: Tensor) -> int:
    """A layer's input channels; -1, which no input has, at another number of dimensions."""
    if layer.weight.dim() == 4:
        return int(layer.weight.shape[1]) * int(layer.groups) if x.dim() == 4 else -1
    return int(layer.weight.shape[1]) if x.dim() > 1 else -1


def output_shape(layer: Any, x: Tensor) -> tuple[int, ...]:
    """The shape of a layer's output."""
    if not isinstance(layer, nn.Conv2d):
        return (*x.shape[:-1], layer.weight.shape[0])
    geometry: Any = zip(
        x.shape[2:], layer.padding, layer.dilation, layer.kernel_size, layer.stride, strict=True
    )
    sides = (
        (size + 2 * pad - gap * (side - 1) - 1) // step + 1
        for size, pad, gap, side, step in geometry
    )
    return (x.shape[0], layer.weight.shape[0], *sides)


def _fits(residual: Tensor, x: Tensor, shape: tuple[int, ...]) -> bool:
    """Whether a residual can be added without conversion or broadcasting."""
    is_compatible = (
        residual.dtype is x.dtype
        and residual.device == x.device
        and residual.layout is torch.strided
    )
    return is_compatible and residual.shape == shape


class FusedLayer(nn.Module):
    """The methods that a fused layer's class gains."""

    class_apart: ClassVar[type[nn.Module]]
    weight: Tensor
    bias: Any

    def forward(
        self,
        input: Tensor,
        residual: Tensor | None = None,
        activation: str = NONE,
        *,
        is_sure: bool = False,
    ) -> Tensor:
        """activation(layer(input) + residual). `is_sure` means that the calling block has checked
        for autograd, compilation, inspection and autocast.
        """
        if not is_sure:
            if wants_gradient(input, residual, self.weight, self.bias):
                self._forget()  # training may change the weight without counting it
                return self.composed(input, residual, activation)
            if is_composed() or torch._C._is_any_autocast_enabled():
                return self.composed(input, residual, activation)
        ready = self._ready_for(input, residual, activation)
        if ready is None:
            return self.composed(input, residual, activation)
        return ready.call(input, residual)

    def composed(self, x: Tensor, residual: Tensor | None, activation: str) -> Tensor:
        """The unfused computation with torch's operators."""
        output: Tensor = super().forward(x)
        return ACTIVATIONS[activation].compose(output if residual is None else output + residual)

    def _ready_for(self, x: Tensor, residual: Tensor | None, activation: str) -> Ready | None:
        """The bound call for these inputs; None if there is none. This runs at every call."""
        if type(x) not in PLAIN or x.is_nested or x.layout is not torch.strided:
            return None
        known: dict[Any, Ready] = self.__dict__.setdefault("_ready", {})
        key = x.shape, x.stride(), x.dtype, x.device, type(x), type(residual), activation
        ready, weight = known.get(key), self.weight
        if ready is None or not (
            ready.weight is weight
            and ready.version == weight._version
            and ready.pointer == weight.data_ptr()
            and ready.bias is self.bias
        ):
            has_residual = residual is not None
            backend = self._backend(has_residual, activation)
            if backend is None or not self._takes(x, residual):
                return None
            if len(known) >= MOST_READY:
                known.clear()
            state = weight._version, weight.data_ptr()
            packed = self._packed_by(backend, x, known)
            call = backend.bind(self, weight, packed, x, activation, has_residual=has_residual)
            ready = known[key] = Ready(weight, *state, self.bias, output_shape(self, x), call)
        return ready if residual is None or _fits(residual, x, ready.shape) else None

    def _takes(self, x: Tensor, residual: Tensor | None) -> bool:
        """Whether the inputs match the weight and all are plain tensors."""
        weight = self.weight
        return (
            is_plain(x, residual, weight)
            and not weight.is_inference()  # torch does not count its changes
            and width_of(self, x)
            == x.shape[1 if weight.dim() == 4 else -1]  # not every operator checks this
            and x.dtype == weight.dtype
            and x.device == weight.device
            and x.numel() > 0
        )

    def _packed_by(self, backend: Backend, x: Tensor, ready: dict[Any, Ready]) -> Any:
        weight = self.weight
        state = backend, weight._version, weight.data_ptr()
        known = self.__dict__.get("_packed")
        if known is None or known[0] is not weight or known[1] != state:
            ready.clear()  # they hold the weight that was packed before
            known = self.__dict__["_packed"] = weight, state, backend.pack(self, weight.detach(), x)
        return known[2]

    def _backend(self, has_residual: bool, activation: str) -> Backend | None:
        """The chosen backend, or the one likely fastest if that does not support this call."""
        key = has_residual, activation, self.weight.dtype, self.weight.device
        known: dict[Any, Backend | None] = self.__dict__.setdefault("_backends", {})
        if key not in known:
            backends = backends_for(self, has_residual=has_residual, activation=activation)
            known[key] = backends.get(
                self.__dict__.get(CHOSEN, ""), next(iter(backends.values()), None)
            )
        return known[key]

    def train(self, mode: bool = True) -> Self:
        """Set the mode; the packed weight is dropped after training."""
        if mode or self.training:
            self._forget()
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """Apply fn; the packed weight is dropped, since torch does not count this change."""
        self._forget()
        super()._apply(fn, recurse)  # type: ignore[no-untyped-call]
        self._forget()
        return self

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        if name in GEOMETRY:
            self._forget()

    def _forget(self) -> None:
        if not torch.compiler.is_compiling():
            for name in MADE:
                self.__dict__.pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        return {name: value for name, value in self.__dict__.items() if name not in MADE}


class FusedLinear(FusedLayer, nn.Linear):
    """A linear layer with the residual and the activation after it."""

    class_apart = nn.Linear


class FusedConv2d(FusedLayer, nn.Conv2d):
    """A convolution with the residual and the activation after it."""

    class_apart = nn.Conv2d


FUSED: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: FusedLinear, nn.Conv2d: FusedConv2d}
APART = {fused: apart for apart, fused in FUSED.items()}


def make_fused(layer: nn.Module, backend: str = "") -> None:
    """Fuse a layer on a backend; it stays the same object with the same weights."""
    unfuse_layer(layer)
    layer.__class__ = FUSED.get(type(layer), type(layer))
    if backend:
        layer.__dict__[CHOSEN] = backend


def unfuse_layer(layer: nn.Module) -> None:
    """Restore the layer's own class."""
    layer.__class__ = APART.get(type(layer), type(layer))
    for name in (*MADE, CHOSEN):
        layer.__dict__.pop(name, None)


def packed_bytes(model: nn.Module) -> int:
    """The bytes of the packed weights of a model's fused layers, without the originals."""
    return sum(
        layer.weight.nbytes
        for layer in model.modules()
        if isinstance(layer, FusedLayer) and layer.weight.device.type == "cpu"
    )


def kind_of(layer: nn.Module) -> str:
    """The name of a layer's kind if it can be fused; else ''."""
    kind = LAYERS.get(APART.get(type(layer), type(layer)), "")
    if not isinstance(layer, nn.Conv2d) or not kind:
        return kind
    if layer.groups > 1 and layer.groups == layer.in_channels:
        return "depthwise convolution"
    return "1×1 convolution" if set(layer.kernel_size) == {1} else kind


def obstacle(layer: nn.Module) -> str:
    """Why a layer cannot be fused; '' if it can."""
    if "weight" not in layer._parameters:
        return "its weight is computed at each call"
    if layer._forward_pre_hooks:
        return "a hook changes its input, such as to another format"
    if isinstance(layer, nn.Conv2d) and (
        layer.padding_mode != "zeros" or isinstance(layer.padding, str)
    ):
        return "its padding is not a number of zeros"
    return ""
