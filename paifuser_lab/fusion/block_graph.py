"""A block's own forward as a graph: its parts are called, not traced into.

Built on torch.fx. Tracing raises StepError where the graph would not hold at the next call: for
constant tensors, or where the forward writes to the block.
"""

from __future__ import annotations

import copy
from typing import Any

from torch import fx, nn

from ..errors import StepError, first_line
from ..model.dataflow import BlockTracer
from ..model.watch import TRACING
from .call_trace import Form
from .snapshot import unfused_class


def traced(block: nn.Module, form: Form) -> fx.Graph:
    """The graph of a block's forward as a function of the tensors of a call of this form."""
    if "forward" in vars(block):
        raise StepError("its forward was replaced")
    kind = unfused_class(block)
    stand_in = copy.copy(block)
    stand_in.__class__ = type(kind.__name__, (kind,), {"forward": _narrowed(kind.forward, form)})
    before = dict(vars(stand_in))
    try:
        with TRACING:
            graph = BlockTracer().trace(stand_in)
    except Exception as error:
        raise StepError(f"its forward cannot be traced ({first_line(error)[:60]})") from error
    if {name: id(value) for name, value in vars(stand_in).items()} != {
        name: id(value) for name, value in before.items()
    }:
        raise StepError("its forward writes to the block or makes constant tensors")
    return graph


def _narrowed(forward: Any, form: Form) -> Any:
    """The forward as a function of tensors alone; fx needs named arguments. The names are saved."""
    names = [f"given_{index}" for index in range(form.tensors)]
    space: dict[str, Any] = {"call": lambda block, tensors: _called(forward, form, block, tensors)}
    exec(
        f"def forward(self, {', '.join(names)}):\n    return call(self, [{', '.join(names)}])",
        space,
    )
    return space["forward"]


def _called(forward: Any, form: Form, block: nn.Module, tensors: list[Any]) -> Any:
    args, kwargs = form.filled(tensors)
    return forward(block, *args, **kwargs)
