"""Matrix products that a block's forward calls as functions, such as relu(x @ y.T + 0.5) or
relu(F.linear(x, w)), in its graph.

They are no layers, so that a place is named by the block and the call: 'decoder.matmul()'.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from .activation import NONE, SUMS, activation_of
from .consumers import Follower
from .product_call import run_product

CALLS: dict[Any, str] = {
    F.linear: "linear",
    torch.matmul: "matmul",
    operator.matmul: "matmul",
    "matmul": "matmul",
    torch.mm: "mm",
    "mm": "mm",
    torch.addmm: "addmm",
}
CONVOLUTIONS = (
    F.conv1d, F.conv2d, F.conv3d, F.conv_transpose1d, F.conv_transpose2d, F.conv_transpose3d,
)  # fmt: skip


@dataclass(frozen=True)
class Product:
    """A product in a block's graph and what it swallows, by the names of the nodes."""

    call: str
    kind: str
    operands: tuple[
        str, str, str
    ]  # x, the matrix, and the bias that it is given itself; '' is none
    swallowed: tuple[str, ...]
    added: str | float | None = None  # a node, or a number
    activation: str = NONE
    backend: str = ""
    modules: tuple[str, ...] = ()  # the activation's, where it is one

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> Product:
        """A product from plain data."""
        fields: dict[str, Any] = {
            "backend" if name == "way" else name: tuple(value) if isinstance(value, list) else value
            for name, value in data.items()
        }
        return cls(**fields)

    @property
    def data(self) -> dict[str, Any]:
        """The product as plain data, in the fields of saved folders."""
        return {
            "way" if name == "backend" else name: list(value) if isinstance(value, tuple) else value
            for name, value in vars(self).items()
        }

    @property
    def needed(self) -> tuple[str, ...]:
        """The nodes whose values it is computed from."""
        added = (self.added,) if isinstance(self.added, str) else ()
        return (*(one for one in self.operands if one), *added)

    def values(self, values: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
        """x, the matrix, the bias and what is added, of the nodes' values."""
        x, matrix, bias = (values.get(one) for one in self.operands)
        return (
            x,
            matrix,
            bias,
            values.get(self.added) if isinstance(self.added, str) else self.added,
        )

    def swallow(self, graph: fx.Graph, nodes: dict[str, fx.Node]) -> None:
        """Put one call where the last of what it swallows was."""
        call, swallowed = nodes[self.call], [nodes[name] for name in self.swallowed]
        how: dict[str, Any] = {
            "kind": self.kind,
            "activation": self.activation,
            "backend": self.backend,
        }
        with graph.inserting_before(swallowed[-1]):
            made = graph.call_function(run_product, self.values(nodes), how)
        swallowed[-1].replace_all_uses_with(made)
        for node in (*reversed(swallowed), call):
            graph.erase_node(node)
        nodes |= {self.call: made} | dict.fromkeys(self.swallowed, made)


def site_name(block: str, product: Product) -> str:
    """What the place of a product is called: the block and the call in its forward."""
    return f"{block}.{product.call}()" if block else f"{product.call}()"


def products_of(follower: Follower) -> Iterator[Product]:
    """The products of a block's graph that a sum or an activation follows, which then nothing else
    can have.
    """
    for node in list(follower.graph.nodes):
        given = _operands(node)
        if given is not None and (found := _followed(follower, node, *given)) is not None:
            nodes = {one.name: one for one in follower.graph.nodes}
            follower.taken |= {nodes[name] for name in found.swallowed}
            yield found


def functional_convolutions(follower: Follower) -> list[str]:
    """The convolutions that a block calls as functions."""
    return [
        node.name
        for node in follower.graph.nodes
        if node.op == "call_function" and node.target in CONVOLUTIONS
    ]


def _operands(node: fx.Node) -> tuple[str, tuple[fx.Node, fx.Node, fx.Node | None]] | None:
    """The kind of a product, its x, matrix and bias; None for another node, or one that is called
    in another way.
    """
    kind = CALLS.get(node.target) if node.op in ("call_function", "call_method") else None
    named = {
        name: node.kwargs[name]
        for name in ("weight", "bias")
        if kind == "linear" and name in node.kwargs
    }
    if kind is None or len(named) != len(node.kwargs):
        return None
    given: list[Any] = [*node.args, *named.values()]
    x, matrix, bias = (*given, None)[:3] if len(given) in (2, 3) else (None, None, None)
    if kind == "addmm":
        bias, x, matrix = x, matrix, bias
    is_whole = (bias is not None) == (len(given) == 3) or kind == "linear"
    if (
        not isinstance(x, fx.Node)
        or not isinstance(matrix, fx.Node)
        or not isinstance(bias, fx.Node | None)
        or not is_whole
    ):
        return None
    return (kind, (x, matrix, bias)) if (kind == "addmm") <= (bias is not None) else None


def _followed(
    follower: Follower, call: fx.Node, kind: str, given: tuple[fx.Node, fx.Node, fx.Node | None]
) -> Product | None:
    """A product with all that it could swallow; None where that is nothing."""
    passed = follower.passed((call,))
    added = _added(follower, passed[-1]) if given[2] is None else None
    if added is not None:
        passed = follower.passed((*passed, next(iter(passed[-1].users))))
    reader = follower.reader(passed[-1])
    activation = (
        activation_of(reader, follower.block)
        if reader is not None and reader not in follower.taken
        else None
    )
    if reader is None or activation is None or follower.has_hooks(reader):
        activation = NONE
    else:
        passed = (*passed, reader)
    swallowed = passed[1:]
    if (added is None and activation == NONE) or follower.is_written_between(call, swallowed):
        return None
    names = tuple("" if one is None else one.name for one in given)
    last = swallowed[-1]
    return Product(
        call.name, kind, (names[0], names[1], names[2]), tuple(one.name for one in swallowed),
        added.name if isinstance(added, fx.Node) else added, activation,
        modules=(str(last.target),) if activation != NONE and last.op == "call_module" else (),
    )  # fmt: skip


def _added(follower: Follower, last: fx.Node) -> fx.Node | float | None:
    """The other operand of the sum that a product goes into; None where there is no such sum."""
    reader = follower.reader(last)
    if (
        reader is None
        or reader.target not in SUMS
        or reader in follower.taken
        or len(reader.args) != 2
        or reader.kwargs
    ):
        return None
    others = [one for one in reader.args if one is not last]
    if len(others) != 1 or type(others[0]) not in (int, float, fx.Node):
        return None
    if reader.args[0] is not last and follower.writes(reader):
        return None
    other: fx.Node | float = others[0]  # type: ignore[assignment]
    return other
