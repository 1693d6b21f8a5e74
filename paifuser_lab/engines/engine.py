"""The base class of engines, which is also the eager engine; and a model that is called in some
context.
"""

from __future__ import annotations

from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, ClassVar

from torch import nn

from ..machine import threads
from ..workload import Inputs
from .nodes import NodeRecorder

Context = Callable[[], AbstractContextManager[object]]


class Enclosed(nn.Module):
    """A module that is called like the model in it, in the context that `around` makes, if any.

    Attributes that it lacks (a config, a helper method) are looked up in the model.
    """

    def __init__(self, module: nn.Module, around: Context | None = None) -> None:
        super().__init__()
        self.module = module
        self.around = around
        self.train(module.training)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Call the model in the context."""
        if self.around is None:
            return super().__call__(*args, **kwargs)
        with self.around():
            return super().__call__(*args, **kwargs)

    def forward(self, *args: Any, **kwargs: Any) -> Any:
        return self.module(*args, **kwargs)

    def __getattr__(self, name: str) -> Any:
        try:
            return super().__getattr__(name)
        except AttributeError:
            return getattr(super().__getattr__("module"), name)


class Engine(Enclosed):
    """A module that is called like the model it replaces and runs with its own number of threads.

    `opaque` says why the layers inside cannot be timed, where they cannot.
    """

    title: ClassVar[str] = "eager torch"
    opaque: ClassVar[str] = ""

    def __init__(self, module: nn.Module, inputs: Inputs, count: int) -> None:
        super().__init__(module)
        self.threads = count
        self.notes: list[str] = []

    @property
    def computes_in_bf16(self) -> bool:
        """Whether it computes in bf16 also what the model has in fp32."""
        return False

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
