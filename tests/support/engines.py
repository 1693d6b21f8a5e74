"""The engines that run an exported file, as parameters of tests, and a model to look into."""

from __future__ import annotations

import os
from importlib import import_module
from importlib.util import find_spec

import pytest
from torch import Tensor, nn

from paifuser_lab import engines
from paifuser_lab.engines import ENGINES
from paifuser_lab.engines.exported import Exported


def class_of(name: str) -> type[engines.Engine]:
    module, _, kind = ENGINES[name][0].partition(":")
    engine: type[engines.Engine] = getattr(import_module(module, engines.__name__), kind)
    return engine


PARAMETERS = {
    name: pytest.param(
        name,
        marks=pytest.mark.skipif(
            find_spec(package) is None and package not in os.environ.get("PAIFUSER_REQUIRE", ""),
            reason=f"{package} is not installed",
        ),
    )
    for name, (_, package) in ENGINES.items()
    if name != "inductor"  # takes seconds to compile; its own tests are below
}
EXPORTED = [entry for name, entry in PARAMETERS.items() if issubclass(class_of(name), Exported)]


class Block(nn.Module):
    """A small transformer's block: attention written out, norms, and a residual sum."""

    def __init__(self) -> None:
        super().__init__()
        self.norm = nn.LayerNorm(8)
        self.query, self.key, self.value = (nn.Linear(8, 8) for _ in range(3))
        self.mlp = nn.Sequential(nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))

    def forward(self, x: Tensor) -> Tensor:
        y = self.norm(x)
        scores = self.query(y) @ self.key(y).transpose(1, 2)
        x = x + scores.softmax(-1) @ self.value(y)
        return x + self.mlp(x)
