"""The base class of engines, which is also the eager engine."""

from __future__ import annotations

from typing import Any, ClassVar

from torch import nn

from ..machine import threads
from ..workload import Inputs
from .nodes import NodeRecorder


class Engine(nn.Module):
    """A module that is called like the model it replaces and runs with its own number of threads.

    Attributes that the engine lacks (a config, a helper method) are looked up in the model.
    `opaque` says why the layers inside cannot be timed, where they cannot.
    """

    title: ClassVar[str] = "eager torch"
    opaque: ClassVar[str] = ""

    def __init__(self, module: nn.Module, inputs: Inputs, count: int) -> None:
        super().__init__()
        self.module = module
        self.threads = count
        self.notes: list[str] = []
        self.train(module.training)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        """Run the model with the engine's number of threads."""
        with threads(self.threads):
            return self.answer(Inputs(args, kwargs))

    def answer(self, inputs: Inputs) -> Any:
        """The output for these inputs; in the eager engine, that of the model itself."""
        return inputs(self.module)

    def recorder(self, inputs: Inputs) -> NodeRecorder | None:
        """A second copy of what runs these inputs, with the engine's own profiler on."""
        return None

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)
