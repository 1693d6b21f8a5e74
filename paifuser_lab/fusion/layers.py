"""A layer that does, when asked, what follows it too: same weights, same names, same place in the
model.

Called as ever it outputs as ever. Where something differentiates, compiles, exports, or nothing
here can do it at once, it is composed of torch's operators. Its packed weight is made when first
needed and again when the weight changes; it is in no file and no copy. A change that torch does not
count, by an optimizer with `fused=True` or through `weight.data`, is seen since a call with
gradients or `train()` makes it anew; not one that comes after a later call without them.
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

MADE = ("_packed", "_backends", "_ready")  # what a fused layer has beside its weights, in no copy
CHOSEN = "_backend_chosen"
GEOMETRY = ("stride", "padding", "dilation", "groups", "padding_mode")
MOST_READY = 16  # kinds of calls for which all is at hand
LAYERS: dict[type[nn.Module], str] = {nn.Linear: "linear", nn.Conv2d: "convolution"}


@dataclass(frozen=True, slots=True)
class Ready:
    """A call that was bound for inputs of one kind, and of what it was."""

    weight: Tensor
    version: int
    pointer: int
    bias: Tensor | None
    answer: tuple[int, ...]
    call: Bound


def width_of(layer: Any, x: Tensor) -> int:
    """How wide the inputs of a layer are; no width that there is where such an input has other
    dimensions.
    """
    if layer.weight.dim() == 4:
        return int(layer.weight.shape[1]) * int(layer.groups) if x.dim() == 4 else -1
    return int(layer.weight.shape[1]) if x.dim() > 1 else -1


def answer_shape(layer: Any, x: Tensor) -> tuple[int, ...]:
    """The shape of what a layer outputs."""
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


def _fits(residual: Tensor, x: Tensor, answer: tuple[int, ...]) -> bool:
    """Whether it can be added as it is."""
    is_alike = (
        residual.dtype is x.dtype
        and residual.device == x.device
        and residual.layout is torch.strided
    )
    return is_alike and residual.shape == answer


class FusedLayer(nn.Module):
    """What a fused layer adds to the class of the layer."""

    class_apart: ClassVar[type[nn.Module]]
    weight: Tensor
    bias: Any

    def forward(
        self,
        x: Tensor,
        residual: Tensor | None = None,
        activation: str = NONE,
        *,
        is_sure: bool = False,
    ) -> Tensor:
        """activation(layer(x) + residual). Sure is a block that nothing differentiates, compiles,
        inspects or lets torch choose formats.
        """
        if not is_sure:
            if wants_gradient(x, residual, self.weight, self.bias):
                self._forget()  # what comes of it may change the weight uncounted
                return self.composed(x, residual, activation)
            if is_composed() or torch._C._is_any_autocast_enabled():
                return self.composed(x, residual, activation)
        ready = self._ready_for(x, residual, activation)
        return self.composed(x, residual, activation) if ready is None else ready.call(x, residual)

    def composed(self, x: Tensor, residual: Tensor | None, activation: str) -> Tensor:
        """The same of torch's operators."""
        made: Tensor = super().forward(x)
        return ACTIVATIONS[activation].compose(made if residual is None else made + residual)

    def _ready_for(self, x: Tensor, residual: Tensor | None, activation: str) -> Ready | None:
        """What runs it at once; None where nothing does. This is asked at every call."""
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
            backend = self._backend(residual is not None, activation)
            if backend is None or not self._takes(x, residual):
                return None
            if len(known) >= MOST_READY:
                known.clear()
            ready = self._bound(
                backend, x, activation, has_residual=residual is not None, known=known
            )
            known[key] = ready
        return ready if residual is None or _fits(residual, x, ready.answer) else None

    def _takes(self, x: Tensor, residual: Tensor | None) -> bool:
        """Whether it is given what its weight is for, by tensors with nothing behind them."""
        weight = self.weight
        return (
            is_plain(x, residual, weight)
            and not weight.is_inference()  # whose changes torch does not count
            and width_of(self, x)
            == x.shape[1 if weight.dim() == 4 else -1]  # not every operator asks
            and x.dtype == weight.dtype
            and x.device == weight.device
            and x.numel() > 0
        )

    def _bound(
        self,
        backend: Backend,
        x: Tensor,
        activation: str,
        *,
        has_residual: bool,
        known: dict[Any, Ready],
    ) -> Ready:
        weight = self.weight
        state = weight._version, weight.data_ptr()
        call = backend.bind(
            self,
            weight,
            self._packed_by(backend, x, known),
            x,
            activation,
            has_residual=has_residual,
        )
        return Ready(weight, *state, self.bias, answer_shape(self, x), call)

    def _packed_by(self, backend: Backend, x: Tensor, ready: dict[Any, Ready]) -> Any:
        weight = self.weight
        state = backend, weight._version, weight.data_ptr()
        known = self.__dict__.get("_packed")
        if known is None or known[0] is not weight or known[1] != state:
            ready.clear()  # of what was packed before
            known = self.__dict__["_packed"] = weight, state, backend.pack(self, weight.detach(), x)
        return known[2]

    def _backend(self, has_residual: bool, activation: str) -> Backend | None:
        """The way that was chosen, or the likeliest where that is not to be had here."""
        key = has_residual, activation, self.weight.dtype, self.weight.device
        known: dict[Any, Backend | None] = self.__dict__.setdefault("_backends", {})
        if key not in known:
            backends = backends_for(self, has_residual=has_residual, activation=activation)
            known[key] = backends.get(
                self.__dict__.get(CHOSEN, ""), next(iter(backends.values()), None)
            )
        return known[key]

    def train(self, mode: bool = True) -> Self:
        """As ever; what was packed is made anew after a training."""
        if mode or self.training:
            self._forget()
        return super().train(mode)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        """As ever; what was packed is made anew, since torch does not count what this changes."""
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
    """A linear layer, the residual and the activation after it."""

    class_apart = nn.Linear


class FusedConv2d(FusedLayer, nn.Conv2d):
    """A convolution, the residual and the activation after it."""

    class_apart = nn.Conv2d


FUSED: dict[type[nn.Module], type[nn.Module]] = {nn.Linear: FusedLinear, nn.Conv2d: FusedConv2d}
APART = {fused: apart for apart, fused in FUSED.items()}


def make_fused(layer: nn.Module, backend: str = "") -> None:
    """Let a layer do what follows it, in a way; it stays the same object with the same weights."""
    make_apart(layer)
    layer.__class__ = FUSED.get(type(layer), type(layer))
    if backend:
        layer.__dict__[CHOSEN] = backend


def make_apart(layer: nn.Module) -> None:
    """Take that back."""
    layer.__class__ = APART.get(type(layer), type(layer))
    for name in (*MADE, CHOSEN):
        layer.__dict__.pop(name, None)


def packed_bytes(model: nn.Module) -> int:
    """What the packed weights of a model's fused layers take, the originals not counted."""
    on_cpu = [
        one
        for one in model.modules()
        if isinstance(one, FusedLayer) and one.weight.device.type == "cpu"
    ]
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
        return "a hook changes its input, such as to another format"
    if isinstance(layer, nn.Conv2d) and (
        layer.padding_mode != "zeros" or isinstance(layer.padding, str)
    ):
        return "it pads otherwise than with a number of zeros"
    return ""
