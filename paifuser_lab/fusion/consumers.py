"""What follows a layer in a block's graph: a sum, an activation, with no other reader of the values
in between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx, nn
from torch.nn import functional as F

from ..errors import StepError
from ..model.dataflow import calls_of
from ..model.layers import has_hooks
from .activation import NONE, SUMS, activation_of
from .block_graph import traced
from .call_trace import TENSOR, Form

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


@dataclass(frozen=True)
class Chain:
    """The nodes after a layer's call that can be fused with it, the other operand of a sum, and the
    activation at the end.
    """

    call: fx.Node
    swallowed: tuple[fx.Node, ...] = ()
    residual: fx.Node | None = None
    activation: str = NONE
    modules: tuple[str, ...] = ()  # the activation's, if it is a module
    reason: str = ""  # why an operator that follows cannot be fused
    reaches_end: bool = False  # its value is the block's output

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
        called with more than one tensor.
        """
        calls = calls_of(self.graph, part)
        is_plain = len(calls) == 1 and (
            not is_layer or (len(calls[0].args) == 1 and not calls[0].kwargs)
        )
        return calls[0] if is_plain else None

    def chains(self, call: fx.Node) -> Iterator[Chain]:
        """All chains that can be fused with a layer, the longest first, the layer alone last."""
        summed, other, reason = self._summed(call)
        if summed and other:
            yield from self._activated(call, summed, other)
            yield Chain(call, summed, other, reaches_end=_ends(self.passed((call, *summed))[-1]))
        yield from self._activated(call, (), None)
        after = self.passed((call,))[-1]
        yield Chain(call, reason=reason, reaches_end=_ends(after))

    def take(self, chain: Chain) -> None:
        """Reserve the nodes of a chain, so that no other chain contains them."""
        self.taken |= set(chain.swallowed)

    def _activated(
        self, call: fx.Node, before: tuple[fx.Node, ...], residual: fx.Node | None
    ) -> Iterator[Chain]:
        passed = self.passed((call, *before))
        reader = self.reader(passed[-1])
        name = activation_of(reader, self.block) if reader is not None else None
        if reader is None or not name or reader in self.taken or self.has_hooks(reader):
            return
        modules = (str(reader.target),) if reader.op == "call_module" else ()
        yield Chain(call, (*passed[1:], reader), residual, name, modules)

    def _summed(self, call: fx.Node) -> tuple[tuple[fx.Node, ...], fx.Node | None, str]:
        """The sum that reads a layer's output and its other operand; or the reason why there is
        none that can be fused.
        """
        passed = self.passed((call,))
        last, reader = passed[-1], self.reader(passed[-1])
        if reader is None:
            is_joinable = any(
                node.target in SUMS or activation_of(node, self.block) for node in last.users
            )
            return (), None, USED_ELSEWHERE if is_joinable else ""
        if (
            reader.target not in SUMS
            or reader in self.taken
            or len(reader.args) != 2
            or reader.kwargs
        ):
            return (), None, ""
        others = [node for node in reader.args if node is not last]
        if len(others) != 1 or not isinstance(others[0], fx.Node):
            return (), None, ""
        if _writes(reader, self.block) and reader.args[0] is not last:
            return (), None, "the sum is written into its other operand"
        if any(_writes(node, self.block) for node in self._between(call, reader)):
            return (), None, "something is written in place between the layer and the sum"
        return (*passed[1:], reader), others[0], ""

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
        return _writes(node, self.block)

    def is_written_between(self, call: fx.Node, swallowed: tuple[fx.Node, ...]) -> bool:
        """Whether another node may write into a tensor between a call and the last node that is
        fused with it.
        """
        return (
            any(
                self.writes(node)
                for node in self._between(call, swallowed[-1])
                if node not in swallowed
            )
            if swallowed
            else False
        )

    def _between(self, first: fx.Node, last: fx.Node) -> list[fx.Node]:
        nodes = list(self.graph.nodes)
        return nodes[nodes.index(first) + 1 : nodes.index(last)]


def passes_through(module: nn.Module) -> bool:
    """Whether a module in eval mode returns its input unchanged."""
    if type(module) in IDENTITIES:
        return True
    try:
        x, *rest = traced(module, Form((TENSOR,))).nodes
    except StepError:
        return False
    return len(rest) == 1 and rest[0].op == "output" and rest[0].args == (x,)


def _ends(node: fx.Node) -> bool:
    return any(user.op == "output" for user in node.users)


def _writes(node: fx.Node, block: nn.Module) -> bool:
    """Whether a node may change one of its input tensors in place."""
    if node.op == "call_module":
        return bool(getattr(block.get_submodule(str(node.target)), "inplace", False))
    name: Any = (
        node.target if isinstance(node.target, str) else getattr(node.target, "__name__", "")
    )
    is_in_place = name.endswith("_") and not name.endswith("__")
    return node.op != "placeholder" and (
        is_in_place or name in IN_PLACE or bool(node.kwargs.get("inplace")) or "out" in node.kwargs
    )


IN_PLACE = {"iadd", "isub", "imul", "itruediv", "setitem"}
