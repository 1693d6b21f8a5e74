"""What outputs calls in a model's stead."""

from __future__ import annotations

from typing import Any

from torch import nn

from ..machine import threads
from ..workload import Inputs


class Engine(nn.Module):
    """A stand-in that is called like the model it replaces, and runs with a number of threads of
    its own.

    What the stand-in does not have (a config, a helper method) is looked up in the model.
    """

    def __init__(self, module: nn.Module, inputs: Inputs, count: int) -> None:
        super().__init__()
        self.module = module
        self.threads = count
        self.notes: list[str] = []
        self.train(module.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Output with the engine's threads."""
        with threads(self.threads):
            return self.answer(Inputs(args, kwargs))

    def answer(self, inputs: Inputs) -> Any:
        """The eager engine: the model itself."""
        return inputs(self.module)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)
