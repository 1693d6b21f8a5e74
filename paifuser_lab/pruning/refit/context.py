"""The model before and after something was taken from it, and what a repair may know."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from ...workload import Inputs
from ...workload.data import Samples
from .shrunk_layers import Lost


@dataclass(frozen=True)
class Done:
    """What a repair did, and to how many layers."""

    count: int
    sentence: str


@dataclass(frozen=True)
class Scene:
    """A repair may change the weights and statistics of `model`, and nothing of `before`."""

    before: nn.Module
    model: nn.Module
    lost: Mapping[str, Lost]  # the layers whose weights may change
    samples: Samples
    inputs: Inputs  # the example inputs
