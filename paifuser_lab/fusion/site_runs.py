"""How sites run alone: their inputs inside a block, and copies of a layer for timing."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, fx, nn

from .layers import FusedLayer, make_fused


def hooked_inputs(block: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The inputs of a block's own forward, after its pre-hooks, which may change their dtype."""
    for name, hook in block._forward_pre_hooks.items():
        if name in block._forward_pre_hooks_with_kwargs:
            args, kwargs = hook(block, args, kwargs) or (args, kwargs)
        elif (changed := hook(block, args)) is not None:
            args = changed if isinstance(changed, tuple) else (changed,)
    return args, kwargs


class BlockValues(fx.Interpreter):
    """Runs a block's graph and keeps the values of some of its nodes."""

    def __init__(self, block: nn.Module, graph: fx.Graph, wanted: Collection[str]) -> None:
        super().__init__(block, graph=graph)
        self.wanted = wanted
        self.kept: dict[str, Tensor] = {}

    def run_node(self, n: fx.Node) -> Any:
        """Run a node; its value is copied, since a later node may write into it."""
        value = super().run_node(n)
        if n.name in self.wanted and isinstance(value, Tensor):
            self.kept[n.name] = value.clone()
        return value


def in_rotation(
    calls: Sequence[Callable[..., Tensor]], inputs: tuple[Any, ...]
) -> Callable[[], Tensor]:
    """A function that calls the next of `calls` each time; all are called once before."""
    with torch.no_grad():
        for call in calls:
            call(*inputs)
    turn = cycle(calls)
    return lambda: next(turn)(*inputs)


def with_own_weights(layer: FusedLayer) -> FusedLayer:
    """A copy of a layer whose equal weights have memory of their own."""
    layer_copy = copy(layer)
    layer_copy._parameters = {
        name: None if parameter is None else nn.Parameter(parameter.detach().clone())
        for name, parameter in layer._parameters.items()
    }
    return layer_copy


def with_backend(layer: FusedLayer, backend: str) -> FusedLayer:
    """A copy of a layer with the same weights that runs on one backend."""
    layer_copy = copy(layer)
    make_fused(layer_copy, backend)
    return layer_copy


def site_key(layer: FusedLayer, x: Tensor, residual: Tensor | None, activation: str) -> Any:
    """What the time of a site depends on."""
    geometry = (
        (layer.padding, layer.stride, layer.dilation, layer.groups)
        if isinstance(layer, nn.Conv2d)
        else ()
    )
    order = layer.weight.stride(), x.stride(), None if residual is None else residual.stride()
    sizes = tuple(layer.weight.shape), layer.bias is None, tuple(x.shape)
    context = str(x.dtype), str(x.device), torch.get_num_threads()
    return type(layer).__name__, activation, geometry, order, sizes, context
