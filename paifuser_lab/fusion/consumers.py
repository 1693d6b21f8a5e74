"""What follows a layer in a block's graph: a sum, an activation, and nothing else who reads what is
between.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator
from dataclasses import dataclass
from typing import Any

from torch import fx, nn
from torch.nn import functional as F

from ..errors import StepError
from ..model.layers import has_hooks
from .activation import NONE, SUMS, activation_of
from .block_graph import traced
from .call_trace import TENSOR, Form

USED_ELSEWHERE = "what it gives is used elsewhere too"
HANDING_ON = (
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
    """The nodes after a layer's call that can be one with it, the other operand of a sum, and the
    activation at the end.
    """

    call: fx.Node
    swallowed: tuple[fx.Node, ...] = ()
    residual: fx.Node | None = None
    activation: str = NONE
    modules: tuple[str, ...] = ()  # the activation's, where it is one
    reason: str = ""  # why it ends there, where something follows that could have been one with it
    reaches_end: bool = False  # what it gives is the block's output

    @property
    def is_alone(self) -> bool:
        """Whether there is only the layer."""
        return not self.swallowed


class Follower:
    """Follows layers through one graph; what one of them has swallowed, no other can."""

    def __init__(self, block: nn.Module, graph: fx.Graph, passing: Collection[str]) -> None:
        self.block, self.graph = block, graph
        self.passing = passing  # the parts of the block that pass on their inputs, as dropout does
        self.taken: set[fx.Node] = set()

    def call_of(self, part: str, *, is_layer: bool = True) -> fx.Node | None:
        """Where the block calls a part of it; None where it does so never or more than once, or
        gives a layer more than a tensor.
        """
        calls = [one for one in self.graph.nodes if one.op == "call_module" and one.target == part]
        is_plain = len(calls) == 1 and (
            not is_layer or (len(calls[0].args) == 1 and not calls[0].kwargs)
        )
        return calls[0] if is_plain else None

    def chains(self, call: fx.Node) -> Iterator[Chain]:
        """Everything that could be one with a layer, the longest first, the layer alone last."""
        summed, other, reason = self._summed(call)
        if summed and other:
            yield from self._activated(call, summed, other)
            yield Chain(call, summed, other, reaches_end=_ends(self.passed((call, *summed))[-1]))
        yield from self._activated(call, (), None)
        after = self.passed((call,))[-1]
        yield Chain(call, reason=reason, reaches_end=_ends(after))

    def take(self, chain: Chain) -> None:
        """Nobody else can have these."""
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
        """The sum that a layer's output goes into, and its other operand; or why there is none that
        could be one with it.
        """
        passed = self.passed((call,))
        last, reader = passed[-1], self.reader(passed[-1])
        if reader is None:
            is_joinable = any(
                one.target in SUMS or activation_of(one, self.block) for one in last.users
            )
            return (), None, USED_ELSEWHERE if is_joinable else ""
        if (
            reader.target not in SUMS
            or reader in self.taken
            or len(reader.args) != 2
            or reader.kwargs
        ):
            return (), None, ""
        others = [one for one in reader.args if one is not last]
        if len(others) != 1 or not isinstance(others[0], fx.Node):
            return (), None, ""
        if _writes(reader, self.block) and reader.args[0] is not last:
            return (), None, "the sum is written into its other operand"
        if any(_writes(one, self.block) for one in self._between(call, reader)):
            return (), None, "something is written in place between the layer and the sum"
        return (*passed[1:], reader), others[0], ""

    def passed(self, nodes: tuple[fx.Node, ...]) -> tuple[fx.Node, ...]:
        """These nodes and the parts after them that only pass on their inputs."""
        while (reader := self.reader(nodes[-1])) is not None and self._passes_through(reader):
            nodes = (*nodes, reader)
        return nodes

    def _passes_through(self, node: fx.Node) -> bool:
        if node.op == "call_module":
            return node.target in self.passing and not self.has_hooks(node)
        return node.target in DROPOUTS and node.kwargs.get("training", None) is False

    def has_hooks(self, node: fx.Node) -> bool:
        """Whether a node calls a part that something is called before or after."""
        return node.op == "call_module" and has_hooks(self.block.get_submodule(str(node.target)))

    def reader(self, node: fx.Node) -> fx.Node | None:
        """Who reads a node, where that is one."""
        readers = list(node.users)
        return readers[0] if len(readers) == 1 else None

    def writes(self, node: fx.Node) -> bool:
        """Whether a node may change a tensor that it is given."""
        return _writes(node, self.block)

    def is_written_between(self, call: fx.Node, swallowed: tuple[fx.Node, ...]) -> bool:
        """Whether something else may write into a tensor between a call and the last of what it
        swallows.
        """
        return (
            any(
                self.writes(one)
                for one in self._between(call, swallowed[-1])
                if one not in swallowed
            )
            if swallowed
            else False
        )

    def _between(self, first: fx.Node, last: fx.Node) -> list[fx.Node]:
        nodes = list(self.graph.nodes)
        return nodes[nodes.index(first) + 1 : nodes.index(last)]


def passes_through(module: nn.Module) -> bool:
    """Whether a module in eval mode gives back its input, whatever that is."""
    if type(module) in HANDING_ON:
        return True
    try:
        given, *rest = traced(module, Form((TENSOR,))).nodes
    except StepError:
        return False
    return len(rest) == 1 and rest[0].op == "output" and rest[0].args == (given,)


def _ends(node: fx.Node) -> bool:
    return any(one.op == "output" for one in node.users)


def _writes(node: fx.Node, block: nn.Module) -> bool:
    """Whether a node may change a tensor that it is given."""
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
