"""A model perturbed for the time of a context: other weights in a layer, other inputs to it."""

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
    """The model runs alone, in eval mode and full precision, by operators with a second derivative;
    the state of random generators is restored.

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


def seed_generators(device: torch.device, seed: int) -> None:
    """Seed the CPU's generator and that of the model's device; other devices keep theirs."""
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
def weights_replaced(weights: Mapping[tuple[nn.Module, str], Tensor]) -> Iterator[None]:
    """Parameters of modules replaced by other values; where modules share one, only those named
    change.
    """
    before = [(module, name, module._parameters[name]) for module, name in weights]
    try:
        for (module, name), weight in weights.items():
            module._parameters[name] = weight  # type: ignore[assignment]
        yield
    finally:
        for module, name, parameter in before:
            module._parameters[name] = parameter


@contextmanager
def inputs_changed(changes: Mapping[nn.Module, Change]) -> Iterator[None]:
    """Layers whose input goes through a function first, at every call; integers, such as tokens, do
    not.
    """
    handles = []
    try:
        for layer, change in changes.items():
            handles.append(layer.register_forward_pre_hook(_input_hook(change), with_kwargs=True))
        yield
    finally:
        for handle in handles:
            handle.remove()


def _input_hook(change: Change) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]:
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
