"""A model made ready to be looked at: other weights in a layer's place, other inputs at its door,
for a while and never for good.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..workload import Workload, running

Change = Callable[[Tensor], Tensor]


@contextmanager
def twice_differentiable(model: nn.Module) -> Iterator[None]:
    """The model runs alone, in eval mode and full precision, by ways that have a second derivative;
    chance is put back.

    Fused attention has none, and the fast path of nn.TransformerEncoder passes its layers by.
    """
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    devices = [device] if device.type == "cuda" else []
    full_precision = torch.autocast(device.type, enabled=False)
    with (
        running(model),
        torch.random.fork_rng(devices=devices),
        sdpa_kernel(SDPBackend.MATH),
        _no_fast_path(),
        full_precision,
    ):
        yield


def throw_again(device: torch.device, seed: int) -> None:
    """Let a model that plays dice throw the same ones; devices that it is not on keep theirs."""
    torch.default_generator.manual_seed(seed)
    if device.type == "cuda":
        with torch.cuda.device(device):
            torch.cuda.manual_seed(seed)


@contextmanager
def _no_fast_path() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


@contextmanager
def weights_replaced(weights: Mapping[nn.Module, Tensor]) -> Iterator[None]:
    """Layers with other weights; one that shares its weight with another is changed alone."""
    before = [(layer, layer._parameters["weight"]) for layer in weights]
    try:
        for layer, weight in weights.items():
            layer._parameters["weight"] = weight  # type: ignore[assignment]
        yield
    finally:
        for layer, parameter in before:
            layer._parameters["weight"] = parameter


@contextmanager
def inputs_changed(changes: Mapping[nn.Module, Change]) -> Iterator[None]:
    """Layers whose input goes through a function first, at every call; whole numbers, such as
    tokens, do not.
    """
    handles = []
    try:
        for layer, change in changes.items():
            handles.append(layer.register_forward_pre_hook(_at_the_door(change), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _at_the_door(change: Change) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]:
    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, Tensor) and value.is_floating_point() else value

    def enter(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (changed(args[0]), *args[1:]), kwargs
        name = next(iter(kwargs))
        return args, {**kwargs, name: changed(kwargs[name])}

    return enter


def with_gradients(work: Workload) -> Workload:
    """The workload, or one with a copy of the model where its weights were made under
    torch.inference_mode(): they have no gradients.
    """
    return (
        work.copied() if any(weight.is_inference() for weight in work.model.parameters()) else work
    )
