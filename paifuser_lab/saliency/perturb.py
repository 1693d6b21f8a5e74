"""Temporary changes of a model inside a context: other weights in a layer, other inputs to it."""

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
    """Run the model exclusively, in eval mode and full precision, with operators that have a second
    derivative; the state of random generators is restored.

    Fused attention has no second derivative, and the fast path of nn.TransformerEncoder bypasses
    its layers.
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
    """Seed the CPU's generator and that of the model's device; those of other devices are not
    changed.
    """
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
    """Replace parameters of modules by other values; where modules share one, only those named
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
    """Apply a function to the input of layers at every call; integer inputs, such as tokens, are
    not changed.
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
    """The workload, or one with a copy of the model where its weights were created under
    torch.inference_mode(), since such weights have no gradients.
    """
    return (
        work.copied() if any(weight.is_inference() for weight in work.model.parameters()) else work
    )
