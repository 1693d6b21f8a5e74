"""The model before and after a cut, and what a refit may use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from torch import nn

from ...workload import Inputs
from ...workload.data import Samples
from .shrunk_layers import ShrunkLayer


@dataclass(frozen=True)
class RefitResult:
    """In how many layers a refit changed something, and a note on it."""

    count: int
    note: str


@dataclass(frozen=True)
class RefitContext:
    """The inputs of a refit; it may change the weights and statistics of `model`, and nothing of
    `before`.
    """

    before: nn.Module
    model: nn.Module
    lost: Mapping[str, ShrunkLayer]  # the layers whose weights may change
    samples: Samples
    inputs: Inputs  # the example inputs
