"""The parts of a workload of the zoo, example inputs for models, and a unit of many of them."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn

from ..records import ImagePreprocessing
from .weights import initialise

Batches = Sequence[tuple[torch.Tensor, torch.Tensor]]


@dataclass(frozen=True)
class Parts:
    """A model with example inputs and, if it has some, its data, loss, metric and preprocessing."""

    model: nn.Module
    inputs: torch.Tensor | tuple[Any, ...] | dict[str, Any]
    loss: Callable[[Any, torch.Tensor], torch.Tensor] | None = None
    train: Batches | None = None
    test: Batches | None = None
    metric: Callable[[Callable[..., Any], Batches], float] | None = None
    preprocessing: ImagePreprocessing | None = None


class ConvUnit(nn.Sequential):
    """Convolution, batch-norm, activation."""

    def __init__(
        self,
        channels: int,
        width: int,
        kernel: int = 1,
        stride: int = 1,
        *,
        groups: int = 1,
        activation: type[nn.Module] = nn.ReLU,
        eps: float = 1e-5,
    ) -> None:
        conv = nn.Conv2d(
            channels, width, kernel, stride, padding=kernel // 2, groups=groups, bias=False
        )
        super().__init__(conv, nn.BatchNorm2d(width, eps=eps), activation())


def image_parts(model: nn.Module, *, batch: int, side: int, gain: float = 1.0) -> Parts:
    """A model of square colour images, with plausible weights and random images to run it on."""
    initialise(model, gain=gain)
    return Parts(model=model.eval(), inputs=torch.randn(batch, 3, side, side))


def token_parts(model: nn.Module, *, batch: int, length: int, vocabulary: int) -> Parts:
    """A model of token sequences, with random tokens; every sequence ends in padding that the mask
    hides.
    """
    initialise(model)
    padding = torch.arange(batch) % max(1, length // 8) + max(1, length // 16)
    mask = (torch.arange(length) < length - padding[:, None]).long()
    tokens = torch.randint(1, vocabulary, (batch, length)) * mask
    return Parts(model=model.eval(), inputs={"input_ids": tokens, "attention_mask": mask})
