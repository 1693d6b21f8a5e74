"""Fold batch-norms into the convolution or linear layer before them.

What can be folded is read from one run of the model (`graph.observe`), not from its class: the
layer's output goes into the batch-norm and nowhere else, each of the two runs once, and neither
shares a weight with another layer. Where that run may have branched on values of the inputs, the
block around the two has to prove it for every input (`dataflow`). The arithmetic is that of
torch.nn.utils.fusion.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from torch.nn.utils.fusion import fuse_conv_bn_eval, fuse_linear_bn_eval

from .dataflow import always_follows
from .graph import Graph, Operation
from .layers import (
    BATCH_NORMS,
    CONVOLUTIONS,
    TRANSPOSED_CONVOLUTIONS,
    is_altered,
)
from .replace import replace_layer

FOLDABLE = (*CONVOLUTIONS, *TRANSPOSED_CONVOLUTIONS, nn.Linear)


@dataclass(frozen=True)
class FoldPlan:
    """Which batch-norms are folded into which layers, and why the others are not."""

    pairs: tuple[tuple[str, str], ...]
    kept: dict[str, str]


def plan_fold(model: nn.Module, graph: Graph) -> FoldPlan:
    """Decide for each batch-norm whether it can be folded into the layer before it."""
    pairs: list[tuple[str, str]] = []
    kept: dict[str, str] = {}
    users = Counter(id(module) for _, module in model.named_modules(remove_duplicate=False))
    for norm, module in model.named_modules():
        if not isinstance(module, BATCH_NORMS):
            continue
        operation = _norm_operation(graph, norm)
        maker = graph.maker(operation.reads[0]) if operation else None
        layer = maker.layer if maker else ""
        if reason := _obstacle(model, graph, layer, norm, users):
            kept[norm] = reason
        else:
            pairs.append((layer, norm))
    return FoldPlan(tuple(pairs), kept)


def fold(model: nn.Module, pairs: Iterable[tuple[str, str]]) -> None:
    """Fold each batch-norm into its layer and replace it by an identity."""
    for layer, norm in pairs:
        replace_layer(model, layer, _folded(model.get_submodule(layer), model.get_submodule(norm)))
        replace_layer(model, norm, nn.Identity())


def _folded(layer: nn.Module, norm: nn.Module) -> nn.Module:
    if isinstance(layer, nn.Linear):
        return fuse_linear_bn_eval(layer, _with_scale(norm))  # type: ignore[arg-type]
    if isinstance(layer, TRANSPOSED_CONVOLUTIONS):
        return _folded_transposed(layer, norm)
    return fuse_conv_bn_eval(layer, norm)  # type: ignore[arg-type,type-var]


def _folded_transposed(layer: nn.modules.conv._ConvTransposeNd, norm: Any) -> nn.Module:
    """The same for a weight of shape [in, out / groups, …]; torch folds one only for one group."""
    folded, groups = copy.deepcopy(layer), layer.groups
    with torch.no_grad():
        scale = torch.rsqrt(norm.running_var + norm.eps)
        scale = scale if norm.weight is None else scale * norm.weight
        offset = norm.running_mean if layer.bias is None else norm.running_mean - layer.bias
        shift = -offset * scale if norm.bias is None else norm.bias - offset * scale
        by_group = scale.reshape(groups, 1, -1, *[1] * (layer.weight.dim() - 2))
        weight = (torch.unflatten(layer.weight, 0, (groups, -1)) * by_group).flatten(0, 1)
        folded.weight = nn.Parameter(weight.to(layer.weight.dtype), layer.weight.requires_grad)
        folded.bias = nn.Parameter(shift.to(layer.weight.dtype), layer.weight.requires_grad)
    return folded


def _with_scale(norm: nn.Module) -> nn.Module:
    """The batch-norm with a weight and a bias: torch folds one without them into a convolution, but
    not into a linear layer.
    """
    if norm.weight is not None:
        return norm
    scaled = type(norm)(norm.num_features, eps=norm.eps).to(norm.running_mean)
    scaled.load_state_dict(norm.state_dict(), strict=False)
    return scaled.eval()


def _norm_operation(graph: Graph, norm: str) -> Operation | None:
    return next(
        (operation for operation in graph.of_layer(norm) if "batch_norm" in operation.name), None
    )


def _obstacle(
    model: nn.Module, graph: Graph, layer: str, norm: str, users: Counter[int]
) -> str | None:
    """Why a batch-norm cannot be folded; None when it can."""
    operation = _norm_operation(graph, norm)
    if operation is None:
        return "it did not run on the example inputs"
    before, after = model.get_submodule(layer), model.get_submodule(norm)
    if type(before) not in FOLDABLE:
        return (
            "its input comes from "
            f"{'the model itself' if not layer else f'{layer!r} ({type(before).__name__})'}"
        )
    if type(after) not in BATCH_NORMS:
        return f"'{norm}' is a {type(after).__name__}, which may do more than normalise"
    if getattr(after, "running_mean", None) is None:
        return "it keeps no running statistics"
    for name, module in ((layer, before), (norm, after)):
        if graph.entries[name] != 1 or users[id(module)] != 1:
            return f"'{name}' is used more than once"
        if is_altered(module):
            return f"'{name}' has hooks or parametrizations"
    weights = _weights_of(graph, layer, norm)
    if any(len(graph.readers.get(tensor, ())) > 1 for tensor in weights):
        return f"weights of '{layer}' or '{norm}' are shared"
    if len(graph.readers.get(operation.reads[0], ())) != 1 or operation.reads[0] in graph.outputs:
        return f"the output of '{layer}' is used elsewhere too"
    if graph.branches and not always_follows(model, graph, layer, norm):
        return f"the model branches on values of its inputs, and one may use '{layer}' without it"
    return _shape_obstacle(model, graph, layer, operation)


def _shape_obstacle(model: nn.Module, graph: Graph, layer: str, norm: Operation) -> str | None:
    """A batch-norm works on dimension 1; a linear layer's channels are its last dimension, and an
    unbatched convolution's are its first.
    """
    maker = graph.maker(norm.reads[0])
    rank = len(maker.shapes[0]) if maker else 0
    module = model.get_submodule(layer)
    expected = 2 if isinstance(module, nn.Linear) else len(getattr(module, "kernel_size", ())) + 2
    return (
        None
        if rank == expected
        else f"the channels of '{layer}' are not the dimension that the batch-norm normalises"
    )


def _weights_of(graph: Graph, *layers: str) -> list[int]:
    owned = (
        f"{layer}.{name}"
        for layer in layers
        for name in ("weight", "bias", "running_mean", "running_var")
    )
    return [graph.weights[name] for name in owned if name in graph.weights]
