"""Whether two layers follow one another whatever the input: proven from the graph of the block that
calls both, not from one run. Built on torch.fx.
"""

from __future__ import annotations

import copy
from collections.abc import Callable
from threading import get_ident
from typing import Any

from torch import fx, nn

from .graph import Graph
from .watch import TRACING


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
    block = _block_around(layer, after)
    module = model.get_submodule(block)
    if "forward" in vars(module) or not graph.entries[block]:
        return False
    try:
        with TRACING:
            traced = BlockTracer().trace(copy.copy(module))
    except Exception:  # a forward may raise anything where it gets fx's proxies
        return False
    start = len(block) + 1 if block else 0
    makers, users = (_calls(traced, name[start:]) for name in (layer, after))
    return len(makers) == 1 and len(users) == 1 and list(makers[0].users) == users


def _block_around(layer: str, after: str) -> str:
    """The innermost module that has both layers."""
    parts, others = layer.split(".")[:-1], after.split(".")[:-1]
    while parts != others[: len(parts)]:
        parts.pop()
    return ".".join(parts)


def _calls(graph: fx.Graph, layer: str) -> list[fx.Node]:
    return [node for node in graph.nodes if node.op == "call_module" and node.target == layer]
