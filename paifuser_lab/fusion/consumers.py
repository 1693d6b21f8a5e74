"""A block's own forward as a graph, whose parts are called and not traced into, and what follows a
layer there: a sum, an activation, with no other reader of the values in between.

Built on torch.fx. Tracing raises StepError where the graph would not hold at the next call: for
constant tensors, or where the forward writes to the block.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx, nn
from torch.nn import functional as F

from ..errors import StepError, first_line
from ..model.dataflow import BlockTracer, calls_of
from ..model.layers import has_hooks
from ..model.watch import TRACING
from .activation import NONE, SUMS, activation_of
from .call_trace import TENSOR, Form
from .snapshot import unfused_class

IN_PLACE = {"iadd", "isub", "imul", "itruediv", "setitem"}
USED_ELSEWHERE = "its output is used elsewhere too"
IDENTITIES = (
    nn.Identity,
    nn.Dropout,
    nn.Dropout1d,
    nn.Dropout2d,
    nn.Dropout3d,
    nn.AlphaDropout,
    nn.FeatureAlphaDropout,
)
DROPOUTS = (
    F.dropout,
    F.dropout1d,
    F.dropout2d,
    F.dropout3d,
    F.alpha_dropout,
    F.feature_alpha_dropout,
)


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


@dataclass(frozen=True)
class Chain:
    """What can be fused after a layer's call, a sum's other operand, and the last activation."""

    call: fx.Node
    swallowed: tuple[fx.Node, ...] = ()
    residual: fx.Node | None = None
    activation: str = NONE
    modules: tuple[str, ...] = ()  # the activation's, if it is a module
    reason: str = ""  # why an operator that follows cannot be fused

    @property
    def is_alone(self) -> bool:
        """Whether there is only the layer."""
        return not self.swallowed


class Follower:
    """Finds what follows each layer in one graph; a node can be fused with one layer only."""

    def __init__(self, block: nn.Module, graph: fx.Graph, passing: Collection[str]) -> None:
        self.block, self.graph = block, graph
        self.passing = passing  # the parts of the block that pass on their inputs, as dropout does
        self.taken: set[fx.Node] = set()

    def call_of(self, part: str, *, is_layer: bool = True) -> fx.Node | None:
        """The call of a part in the block; None if it is not called exactly once, or if a layer is
        called with more than its input.
        """
        calls = calls_of(self.graph, part)
        is_plain = len(calls) == 1 and (
            not is_layer or len(calls[0].args) + len(calls[0].kwargs) == 1
        )
        return calls[0] if is_plain else None

    def chains(self, call: fx.Node) -> Iterator[Chain]:
        """All chains that can be fused with a layer, the longest first, the layer alone last."""
        summed, other, reason = self._summed(call)
        if summed and other:
            yield from self._activated(call, summed, other)
            yield Chain(call, summed, other)
        yield from self._activated(call, (), None)
        yield Chain(call, reason=reason)

    def is_output(self, call: fx.Node) -> bool:
        """Whether a call's value is the block's output."""
        return any(user.op == "output" for user in self.passed((call,))[-1].users)

    def take(self, chain: Chain) -> None:
        """Reserve the nodes of a chain, so that no other chain contains them."""
        self.taken |= set(chain.swallowed)

    def _activated(
        self, call: fx.Node, before: tuple[fx.Node, ...], residual: fx.Node | None
    ) -> Iterator[Chain]:
        passed = self.passed((call, *before))
        reader, name = self.activation_after(passed[-1])
        if reader is not None:
            modules = (str(reader.target),) if reader.op == "call_module" else ()
            yield Chain(call, (*passed[1:], reader), residual, name, modules)

    def activation_after(self, node: fx.Node) -> tuple[fx.Node | None, str]:
        """The activation that alone reads a node and can be fused with it, and its name."""
        reader = self.reader(node)
        if reader is None or reader in self.taken or self.has_hooks(reader):
            return None, NONE
        name = activation_of(reader, self.block)
        return (reader, name) if name else (None, NONE)

    def sum_after(self, node: fx.Node) -> tuple[fx.Node, Any] | None:
        """The sum that alone reads a node and can be fused with it, and its other operand."""
        reader = self.reader(node)
        if (
            reader is None
            or reader.target not in SUMS
            or reader in self.taken
            or len(reader.args) != 2
            or reader.kwargs
        ):
            return None
        others = [arg for arg in reader.args if arg is not node]
        return (reader, others[0]) if len(others) == 1 else None

    def _summed(self, call: fx.Node) -> tuple[tuple[fx.Node, ...], fx.Node | None, str]:
        """The sum that reads a layer's output and its other operand; or why none can be fused."""
        passed = self.passed((call,))
        last = passed[-1]
        if self.reader(last) is None:
            is_joinable = any(
                node.target in SUMS or activation_of(node, self.block) for node in last.users
            )
            return (), None, USED_ELSEWHERE if is_joinable else ""
        if (following := self.sum_after(last)) is None or not isinstance(following[1], fx.Node):
            return (), None, ""
        reader, other = following
        if self.writes(reader) and reader.args[0] is not last:
            return (), None, "the sum is written into its other operand"
        if self.is_written_between(call, (reader,)):
            return (), None, "something is written in place between the layer and the sum"
        return (*passed[1:], reader), other, ""

    def passed(self, nodes: tuple[fx.Node, ...]) -> tuple[fx.Node, ...]:
        """These nodes and the parts after them that return their input unchanged."""
        while (reader := self.reader(nodes[-1])) is not None and self._passes_through(reader):
            nodes = (*nodes, reader)
        return nodes

    def _passes_through(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return node.target in self.passing and not self.has_hooks(node)
        return node.target in DROPOUTS and node.kwargs.get("training", None) is False

    def has_hooks(self, node: fx.Node) -> bool:
        """Whether a node calls a part with forward hooks or forward pre-hooks."""
        return node.op == "call_module" and has_hooks(self.block.get_submodule(str(node.target)))

    def reader(self, node: fx.Node) -> fx.Node | None:
        """The only reader of a node; None if there are several or none."""
        readers = list(node.users)
        return readers[0] if len(readers) == 1 else None

    def writes(self, node: fx.Node) -> bool:
        """Whether a node may change one of its input tensors in place."""
        if node.op == "call_module":
            return bool(getattr(self.block.get_submodule(str(node.target)), "inplace", False))
        name: Any = (
            node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
        )
        is_in_place = name in IN_PLACE or (name.endswith("_") and not name.endswith("__"))
        return node.op != "placeholder" and (
            is_in_place or bool(node.kwargs.get("inplace")) or "out" in node.kwargs
        )

    def is_written_between(self, call: fx.Node, swallowed: tuple[fx.Node, ...]) -> bool:
        """Whether a node may write into a tensor between a call and the last one fused with it."""
        nodes = list(self.graph.nodes)
        between = nodes[nodes.index(call) + 1 : nodes.index((call, *swallowed)[-1])]
        return any(self.writes(node) for node in between if node not in swallowed)


def passes_through(module: nn.Module) -> bool:
    """Whether a module in eval mode returns its input unchanged."""
    if type(module) in IDENTITIES:
        return True
    try:
        x, *rest = traced(module, Form((TENSOR,))).nodes
    except StepError:
        return False
    return len(rest) == 1 and rest[0].op == "output" and rest[0].args == (x,)
