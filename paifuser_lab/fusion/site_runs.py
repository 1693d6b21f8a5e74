"""How sites run alone: their inputs inside a block, and copies of a layer to be timed."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from copy import copy
from itertools import cycle
from typing import Any

import torch
from torch import Tensor, fx, nn

from .layers import FusedLayer, make_fused


def hooked_inputs(block: nn.Module, args: Any, kwargs: Any) -> tuple[Any, Any]:
    """The inputs of a block's own forward, after its hooks, such as those that change
    their format.
    """
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
        """Copied, since what comes after may write into it."""
        value = super().run_node(n)
        if n.name in self.wanted and isinstance(value, Tensor):
            self.kept[n.name] = value.clone()
        return value


def in_rotation(
    calls: Sequence[Callable[..., Tensor]], inputs: tuple[Any, ...]
) -> Callable[[], Tensor]:
    """Each time the next of them; all were called once."""
    with torch.no_grad():
        for call in calls:
            call(*inputs)
    turn = cycle(calls)
    return lambda: next(turn)(*inputs)


def with_own_weights(layer: FusedLayer) -> FusedLayer:
    """A layer of equal weights that lie elsewhere."""
    layer_copy = copy(layer)
    layer_copy._parameters = {
        name: None if one is None else nn.Parameter(one.detach().clone())
        for name, one in layer._parameters.items()
    }
    return layer_copy


def with_backend(layer: FusedLayer, backend: str) -> FusedLayer:
    """A layer of the same weights that runs in one way."""
    layer_copy = copy(layer)
    make_fused(layer_copy, backend)
    return layer_copy


def site_key(layer: FusedLayer, x: Tensor, residual: Tensor | None, activation: str) -> Any:
    """What the time of a place depends on."""
    geometry = (
        (layer.padding, layer.stride, layer.dilation, layer.groups)
        if isinstance(layer, nn.Conv2d)
        else ()
    )
    order = layer.weight.stride(), x.stride(), None if residual is None else residual.stride()
    sizes = tuple(layer.weight.shape), layer.bias is None, tuple(x.shape)
    site = str(x.dtype), str(x.device), torch.get_num_threads()
    return type(layer).__name__, activation, geometry, order, sizes, site
