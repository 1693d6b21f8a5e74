"""Run a part of a model in another floating-point format, with casts at its boundary."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import StepError
from ..model.formats import AUTOCAST, FLOATS, HALVES

WITHOUT_MATRIX_PRODUCT = (
    nn.modules.batchnorm._NormBase,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.RMSNorm,
    nn.Embedding,
    nn.EmbeddingBag,
    nn.PReLU,
)


# whether a part under autocast is exported as the casts that autocast makes
_as_casts: ContextVar[bool] = ContextVar("autocast as casts", default=False)


@contextmanager
def autocast_as_casts() -> Iterator[None]:
    """Let parts under autocast be exported, as casts around their operators; the engines, which run
    the result at once, refuse them.
    """
    token = _as_casts.set(True)
    try:
        yield
    finally:
        _as_casts.reset(token)


def autocast_dtypes(module: nn.Module) -> set[torch.dtype]:
    """The dtypes of the parts of a model that run under autocast."""
    forwards = [part.__dict__.get("forward") for part in module.modules()]
    return {entry.dtype for entry in forwards if isinstance(entry, Autocast) and entry.dtype}


def cast_at_boundary(
    module: nn.Module,
    *,
    inside: str,
    outside: str,
    original: str,
    apart: Collection[nn.Module] = (),
) -> None:
    """Convert a module to a format; its inputs are cast at its boundary, and its outputs back to
    the format outside.

    Under autocast its weights stay in the original format, and torch chooses each operator's
    format. Parts in `apart` keep their formats.
    """
    stored = FLOATS[original if inside in AUTOCAST else inside]
    _move(module, stored, {id(module) for part in apart for module in part.modules()})
    if inside in AUTOCAST or outside in AUTOCAST:
        module.forward = Autocast(module.forward, _device_of(module, inside), AUTOCAST.get(inside))
    boundary = CastAtBoundary(stored, FLOATS[original if outside in AUTOCAST else outside])
    module.register_forward_pre_hook(boundary.cast_inputs, with_kwargs=True)
    module.register_forward_hook(boundary.cast_outputs)


def dtype_inside(module: nn.Module) -> torch.dtype | None:
    """The dtype that a module computes in between its own casts; None where it has none."""
    forward = module.__dict__.get("forward")
    if (
        isinstance(forward, Autocast)
        and forward.dtype is not None
        and not isinstance(module, WITHOUT_MATRIX_PRODUCT)
    ):
        return forward.dtype
    owners = [getattr(hook, "__self__", None) for hook in module._forward_pre_hooks.values()]
    inside = [owner.inside for owner in owners if isinstance(owner, CastAtBoundary)]
    return inside[-1] if inside else None  # the last cast is the one that it gets


def computes_in_16_bits(module: nn.Module) -> bool:
    """Whether some weights are in 16 bits, or some parts run under autocast."""
    if any(weight.dtype in HALVES for weight in module.parameters()):
        return True
    return any(isinstance(part.__dict__.get("forward"), Autocast) for part in module.modules())


def _move(module: nn.Module, dtype: torch.dtype, apart: Collection[int]) -> None:
    """Convert weights, except those apart: casting them there and back would round them."""
    if not apart:
        module.to(dtype)
        return
    for part in module.modules():
        if id(part) not in apart:
            part._apply(
                lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor,
                recurse=False,
            )  # type: ignore[no-untyped-call]


def autocast_obstacle(layer: nn.Module) -> str | None:
    """Why a layer by itself cannot run under autocast, or is not affected; None where it is."""
    device = _device_type(layer)
    if not torch.amp.is_autocast_available(device):
        return f"torch has no autocast on {device}"
    if isinstance(layer, WITHOUT_MATRIX_PRODUCT):
        return (
            f"autocast is for what multiplies matrices, and leaves a {type(layer).__name__} in fp32"
        )
    return None


def _device_type(module: nn.Module) -> str:
    return next((parameter.device.type for parameter in module.parameters()), "cpu")


def _device_of(module: nn.Module, name: str) -> str:
    device = _device_type(module)
    if not torch.amp.is_autocast_available(device):
        raise StepError(
            f"{name}: torch has no autocast on {device}; choose bf16 or fp16, which convert the "
            "weights."
        )
    return device


@dataclass(frozen=True)
class CastAtBoundary:
    """A module's hooks that cast its inputs and outputs."""

    inside: torch.dtype
    outside: torch.dtype

    def cast_inputs(self, module: nn.Module, args: Any, kwargs: Any) -> Any:
        """The module's inputs, in the format inside."""
        return _cast((args, kwargs), self.inside)

    def cast_outputs(self, module: nn.Module, args: Any, output: Any) -> Any:
        """The module's outputs, in the format outside."""
        return _cast(output, self.outside)


class Autocast:
    """A module's forward under autocast to a dtype, or with autocast disabled."""

    def __init__(self, forward: Callable[..., Any], device: str, dtype: torch.dtype | None) -> None:
        self.forward, self.device, self.dtype = forward, device, dtype

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """The module's output; raises on export for an engine, since the file would hold
        dtypes that the engines do not accept.
        """
        if torch.compiler.is_exporting() and not _as_casts.get():
            raise StepError(
                "a part under autocast cannot be exported; choose bf16 or fp16, which convert the "
                "weights"
            )
        with torch.autocast(self.device, self.dtype, enabled=self.dtype is not None):
            return self.forward(*args, **kwargs)


def _cast(values: Any, dtype: torch.dtype) -> Any:
    return pytree.tree_map_only(
        Tensor, lambda tensor: tensor.to(dtype) if tensor.is_floating_point() else tensor, values
    )
