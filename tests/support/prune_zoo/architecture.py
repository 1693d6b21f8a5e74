"""The registry of architectures, and how one is built for a comparison."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from paifuser_lab.workload import Workload


@dataclass(frozen=True)
class Architecture:
    """A small model and inputs for it."""

    name: str
    build: Callable[[], nn.Module]
    inputs: Callable[[], Any]

    def workload(self, seed: int = 0) -> Workload:
        """The model with all weights different, so that mixed-up channels are detected."""
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = scattered(self.build().eval())
            return Workload(model, self.inputs(), name=self.name)


_REGISTRY: dict[str, Architecture] = {}


def architecture(
    name: str, inputs: Callable[[], Any]
) -> Callable[[Callable[[], nn.Module]], Callable[[], nn.Module]]:
    """Register a model, by its class or by a function that builds it."""

    def register(build: Callable[[], nn.Module]) -> Callable[[], nn.Module]:
        _REGISTRY[name] = Architecture(name, build, inputs)
        return build

    return register


def architectures() -> tuple[Architecture, ...]:
    """Every architecture, in order of registration."""
    return tuple(_REGISTRY.values())


def scattered(model: nn.Module) -> nn.Module:
    """Initialize weights and running statistics as after training: none zero, none equal."""
    with torch.no_grad():
        for weight in model.parameters():
            spread = 0.5 if weight.ndim < 2 else (2 / max(1, weight[0].numel())) ** 0.5
            weight.normal_(0.0, spread).add_(0.5 if weight.ndim < 2 else 0.0)
        for name, buffer in model.named_buffers():
            if name.endswith(("running_mean", "running_var")):
                buffer.uniform_(0.5, 1.5)
    return model


def images(batch: int = 2, channels: int = 3, size: int = 16) -> Callable[[], torch.Tensor]:
    """Random images."""
    return lambda: torch.randn(batch, channels, size, size)


def tokens(batch: int = 2, length: int = 7, vocabulary: int = 32) -> Callable[[], torch.Tensor]:
    """Random token ids."""
    return lambda: torch.randint(0, vocabulary, (batch, length))


def vectors(*shape: int) -> Callable[[], torch.Tensor]:
    """Random values of a shape."""
    return lambda: torch.randn(*shape)
