"""Who reads an output: in one run, which operators read what an operator makes, and along which
paths; for every input, proven from the graph of the block that calls the layers, built on torch.fx.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterator
from threading import get_ident
from typing import Any

from torch import fx, nn

from .graph import Graph, Operation
from .watch import TRACING

OUTPUT = "output"  # the name of the last node, which reads what the model returns


class Dataflow:
    """The operators of a run as nodes, by their number in order, and who reads the output of each.
    A tensor that is written in place is the output of the operator that wrote it last.
    """

    def __init__(self, graph: Graph) -> None:
        self.nodes = (*graph.operations, Operation(OUTPUT, "", tuple(graph.outputs), (), ()))
        self._readers: list[list[int]] = [[] for _ in self.nodes]
        self._readers_of_others: list[list[int]] = [[] for _ in self.nodes]
        maker: dict[int, tuple[int, bool]] = {}
        for node, operation in enumerate(self.nodes):
            for tensor in dict.fromkeys(operation.reads):
                if tensor in maker:
                    made_by, is_first = maker[tensor]
                    readers = self._readers if is_first else self._readers_of_others
                    readers[made_by].append(node)
            for index, tensor in enumerate(operation.makes):
                maker[tensor] = node, index == 0

    def readers(self, node: int) -> list[int]:
        """The nodes that read what a node makes."""
        return self._readers[node] + self._readers_of_others[node]

    def paths(self, node: int, through: Collection[str]) -> Iterator[tuple[int, ...]]:
        """The ways from a node, without it, through operators of the given names to each reader
        that has another name, or that reads their second result (indices, as of max-pooling).
        """
        for reader in self._readers_of_others[node]:
            yield (reader,)
        for reader in self._readers[node]:
            if self.nodes[reader].name not in through:
                yield (reader,)
            else:
                yield from ((reader, *path) for path in self.paths(reader, through))


class BlockTracer(fx.Tracer):
    """Traces one module; what other threads run meanwhile is not traced, though fx patches the
    call of every module.
    """

    proxy_buffer_attributes = True

    def __init__(self) -> None:
        super().__init__()
        self._thread = get_ident()

    def is_leaf_module(self, m: nn.Module, module_qualified_name: str) -> bool:
        return True

    def call_module(
        self, m: nn.Module, forward: Callable[..., Any], args: Any, kwargs: dict[str, Any]
    ) -> Any:
        if get_ident() != self._thread:
            return forward(*args, **kwargs)
        return super().call_module(m, forward, args, kwargs)

    def getattr(self, attr: str, attr_val: Any, parameter_proxy_cache: dict[str, Any]) -> Any:
        if get_ident() != self._thread:
            return attr_val
        return super().getattr(attr, attr_val, parameter_proxy_cache)


def always_follows(model: nn.Module, graph: Graph, layer: str, after: str) -> bool:
    """Whether the block around two layers gives the output of `layer` to `after` alone. A block
    that branches on its input cannot be traced, and one whose layers are called without it is not
    run: neither proves anything.
    """
    parts, others = layer.split(".")[:-1], after.split(".")[:-1]
    while parts != others[: len(parts)]:
        parts.pop()
    block = ".".join(parts)  # the innermost one that has both layers
    module = model.get_submodule(block)
    if "forward" in vars(module) or not graph.entries[block]:
        return False
    try:
        with TRACING:
            traced = BlockTracer().trace(copy.copy(module))
    except Exception:  # a forward may raise anything where it gets fx's proxies
        return False
    start = len(block) + 1 if block else 0
    makers, users = (calls_of(traced, name[start:]) for name in (layer, after))
    return len(makers) == 1 and len(users) == 1 and list(makers[0].users) == users


def calls_of(graph: fx.Graph, part: str) -> list[fx.Node]:
    """The calls of a part of a block, in the graph of the block's forward."""
    return [node for node in graph.nodes if node.op == "call_module" and node.target == part]
