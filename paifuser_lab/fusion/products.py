"""Matrix products that a block's forward calls as functions, such as relu(x @ y.T + 0.5) or
relu(F.linear(x, w)), found in its graph.

They are no layers, so a site is named by the block and the call: 'decoder.matmul()'.
"""

from __future__ import annotations

import operator
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx
from torch.nn import functional as F

from .activation import NONE
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
    """A product in a block's graph and the nodes fused with it, by name."""

    call: str
    kind: str
    operands: tuple[str, str, str]  # x, the matrix, and the product's own bias or ''
    swallowed: tuple[str, ...]
    added: str | float | None = None  # a node, or a number
    activation: str = NONE
    backend: str = ""
    modules: tuple[str, ...] = ()  # the activation's, if it is a module

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
        """The nodes whose values are its inputs."""
        added = (self.added,) if isinstance(self.added, str) else ()
        return (*(name for name in self.operands if name), *added)

    def values(self, values: dict[str, Any]) -> tuple[Any, Any, Any, Any]:
        """x, the matrix, the bias and the added operand, given the nodes' values."""
        x, matrix, bias = (values.get(name) for name in self.operands)
        return (
            x,
            matrix,
            bias,
            values.get(self.added) if isinstance(self.added, str) else self.added,
        )

    def swallow(self, graph: fx.Graph, nodes: dict[str, fx.Node]) -> None:
        """Replace the product and the nodes fused with it by one call, at the last of them."""
        call, swallowed = nodes[self.call], [nodes[name] for name in self.swallowed]
        options: dict[str, Any] = {
            "kind": self.kind,
            "activation": self.activation,
            "backend": self.backend,
        }
        with graph.inserting_before(swallowed[-1]):
            fused = graph.call_function(run_product, self.values(nodes), options)
        swallowed[-1].replace_all_uses_with(fused)
        for node in (*reversed(swallowed), call):
            graph.erase_node(node)
        nodes |= {self.call: fused} | dict.fromkeys(self.swallowed, fused)


def site_name(block: str, product: Product) -> str:
    """The name of a product's site: the block and the call in its forward."""
    return f"{block}.{product.call}()" if block else f"{product.call}()"


def products_of(follower: Follower) -> Iterator[Product]:
    """The products in a block's graph before a sum or activation; their nodes are reserved."""
    for node in list(follower.graph.nodes):
        operands = _operands(node)
        if operands is not None and (product := _followed(follower, node, *operands)) is not None:
            nodes = {node.name: node for node in follower.graph.nodes}
            follower.taken |= {nodes[name] for name in product.swallowed}
            yield product


def functional_convolutions(follower: Follower) -> list[str]:
    """The convolutions that a block calls as functions."""
    return [
        node.name
        for node in follower.graph.nodes
        if node.op == "call_function" and node.target in CONVOLUTIONS
    ]


def _operands(node: fx.Node) -> tuple[str, tuple[fx.Node, fx.Node, fx.Node | None]] | None:
    """The kind of a product, its x, matrix and bias; None for any other node or call."""
    kind = CALLS.get(node.target) if node.op in ("call_function", "call_method") else None
    named = {
        name: node.kwargs[name]
        for name in ("weight", "bias")
        if kind == "linear" and name in node.kwargs
    }
    if kind is None or len(named) != len(node.kwargs):
        return None
    args: list[Any] = [*node.args, *named.values()]
    x, matrix, bias = (*args, None)[:3] if len(args) in (2, 3) else (None, None, None)
    if kind == "addmm":
        bias, x, matrix = x, matrix, bias
    is_whole = (bias is not None) == (len(args) == 3) or kind == "linear"
    if (
        not isinstance(x, fx.Node)
        or not isinstance(matrix, fx.Node)
        or not isinstance(bias, fx.Node | None)
        or not is_whole
    ):
        return None
    return (kind, (x, matrix, bias)) if (kind == "addmm") <= (bias is not None) else None


def _followed(
    follower: Follower, call: fx.Node, kind: str, operands: tuple[fx.Node, fx.Node, fx.Node | None]
) -> Product | None:
    """A product with all that can be fused with it; None if nothing can."""
    passed = follower.passed((call,))
    added = _added(follower, passed[-1]) if operands[2] is None else None
    if added is not None:
        passed = follower.passed((*passed, next(iter(passed[-1].users))))
    reader, activation = follower.activation_after(passed[-1])
    swallowed = passed[1:] if reader is None else (*passed[1:], reader)
    if (added is None and activation == NONE) or follower.is_written_between(call, swallowed):
        return None
    names = tuple("" if node is None else node.name for node in operands)
    last = swallowed[-1]
    return Product(
        call.name, kind, (names[0], names[1], names[2]), tuple(node.name for node in swallowed),
        added.name if isinstance(added, fx.Node) else added, activation,
        modules=(str(last.target),) if activation != NONE and last.op == "call_module" else (),
    )  # fmt: skip


def _added(follower: Follower, last: fx.Node) -> fx.Node | float | None:
    """The other operand of the sum that reads a product; None if there is no such sum."""
    following = follower.sum_after(last)
    if following is None or type(following[1]) not in (int, float, fx.Node):
        return None
    reader, other = following
    if reader.args[0] is not last and follower.writes(reader):
        return None
    added: fx.Node | float = other
    return added
