"""torch.compile's Inductor, with or without frozen weights."""

from __future__ import annotations

from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import nn

from ..machine import threads
from ..model.silence import compilers_silenced
from ..workload import Inputs
from .engine import Engine

PREPACKED = (
    "mkldnn::_convolution_pointwise",
    "mkldnn::_linear_pointwise",
    "mkl::_mkl_linear",
    "onednn::",
)


class Inductor(Engine):
    """Compiles at once for the example inputs, and for other shapes when they come."""

    title = "Inductor"
    opaque = (
        "Inductor compiles the layers into kernels of its own that carry no layer's name, so that "
        "the model is one row."
    )

    def __init__(
        self, module: nn.Module, inputs: Inputs, count: int, *, freeze: bool = False
    ) -> None:
        super().__init__(module, inputs, count)
        self.freeze = freeze
        self.compiled = torch.compile(_entry_of(module))
        with compilers_silenced():  # the first call compiles, and logs each break in the graph
            self(*inputs.args, **inputs.kwargs)
        if freeze:
            self.notes.append(_prepacked_note(lambda: self(*inputs.args, **inputs.kwargs)))

    def __getstate__(self) -> dict[str, Any]:
        """Without the compiled code, in which a copy would run with the original's weights."""
        return {name: value for name, value in self.__dict__.items() if name != "compiled"}

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)  # type: ignore[no-untyped-call]
        self.compiled = torch.compile(_entry_of(self.module))

    def answer(self, inputs: Inputs) -> Any:
        """Run the compiled code; freezing is a global option, so it is set only during the call,
        which may compile.
        """
        from torch._inductor import config

        with torch.no_grad(), config.patch(freezing=self.freeze), threads(self.threads):
            return self.compiled(*inputs.args, **inputs.kwargs)


def _entry_of(module: nn.Module) -> Callable[..., Any]:
    """A new function around the module: torch caches compiled code by a function's code object, and
    models of one class would share its recompile limit.
    """

    def entry(*args: Any, **kwargs: Any) -> Any:
        return module(*args, **kwargs)

    own_code = entry.__code__.replace(co_name=f"entry_{id(module)}")
    return FunctionType(own_code, entry.__globals__, own_code.co_name, None, entry.__closure__)


def _prepacked_note(call: Callable[[], Any]) -> str:
    """Count the operators that ran with prepacked weights: the option alone does not ensure it."""
    with torch.autograd.profiler.profile() as profiled:
        call()
    names = [event.name() for event in profiled.kineto_results.events()]
    packed = sum(name.startswith(PREPACKED) for name in names)
    return (
        f"frozen: {packed} operators run with prepacked weights"
        if packed
        else "frozen, yet no operator runs with prepacked weights"
    )
