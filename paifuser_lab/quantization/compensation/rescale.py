"""Rescale channels between layers, so that they are easier to round; the model's function does not
change.

Equalise divides a layer's channels by a factor and multiplies the next layer's by it: Nagel et al.
(2019), "Data-Free Quantization Through Weight Equalization and Bias Correction", arXiv:1906.04721.
relu(s·x) = s·relu(x) for s > 0; that does not hold for relu6. Smooth moves outliers from a layer
norm's output into the weights that read it: SmoothQuant of Xiao et al. (2022), arXiv:2211.10438.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ...model.dataflow import Dataflow
from ...model.graph import Graph, Operation
from ...model.layers import CONVOLUTIONS, is_altered
from ...records import counted
from ..neighbours import PRODUCTS
from .context import Context, Outcome, read_layer_data
from .operands import groups_of

MAX_SWEEPS = 20
TOLERANCE = 1e-3  # stop after a sweep that changes no log-scale by more


def equalise(context: Context) -> Outcome:
    """Rescale pair after pair, repeatedly, since a layer between two others is in two pairs."""
    pairs, clamped = _pairs(context)
    for _ in range(MAX_SWEEPS if pairs else 0):
        if (
            max(
                _rescale(context.model.get_submodule(first), context.model.get_submodule(second))
                for first, second in pairs
            )
            < TOLERANCE
        ):
            break
    skipped = (
        f" ({counted(clamped, 'pair')} left alone: a clamp such as relu6 stands between, which "
        "does not scale)"
        if clamped
        else ""
    )
    return Outcome(
        len(pairs), f"cross-layer equalisation of {counted(len(pairs), 'pair')} of layers{skipped}"
    )


def _pairs(context: Context) -> tuple[list[tuple[str, str]], int]:
    """Chosen layers that one other of their kind alone reads; how many have a clamp between."""
    pairs: list[tuple[str, str]] = []
    clamped = 0
    modules = {layer: context.model.get_submodule(layer) for layer in context.chosen}
    for kinds, passes in (
        (CONVOLUTIONS, (*RELUS, *CLAMPS)),
        ((nn.Linear,), (*RELUS, *CLAMPS, *SHAPES)),
    ):
        once = {
            layer: module.weight.shape[0]
            for layer, module in modules.items()
            if isinstance(module, kinds) and context.graph.entries[layer] == 1
        }
        for layer, readers in sole_consumers(
            context.graph, once, PRODUCTS, passes, set(once)
        ).items():
            if len(readers.layers) == 1 and readers.passed.isdisjoint(CLAMPS):
                pairs.append((layer, readers.layers[0]))
            elif len(readers.layers) == 1:
                clamped += 1
    return pairs, clamped


def _rescale(first: Any, second: Any) -> float:
    """Equalise the channel ranges between two layers; return the largest change of a log-scale."""
    output_range = first.weight.detach().flatten(1).abs().amax(dim=1)
    input_range = _by_input(second).abs().amax(dim=(1, 3)).flatten()
    scales = torch.where(
        (output_range > 0) & (input_range > 0),
        (output_range.double() / input_range.double()).sqrt(),
        1.0,
    ).to(output_range.dtype)
    with torch.no_grad():
        _scale_outputs(first, 1 / scales)
        weight = _by_input(second) * scales.reshape(groups_of(second), 1, -1, 1)
        second.weight.copy_(weight.reshape(second.weight.shape))
    return float(scales.log().abs().max())


def _scale_outputs(layer: Any, scales: Tensor) -> None:
    layer.weight.mul_(scales.reshape(-1, *(1,) * (layer.weight.ndim - 1)))
    if layer.bias is not None:
        layer.bias.mul_(scales)


def _by_input(layer: Any) -> Tensor:
    """A weight as (groups, outputs of a group, inputs of a group, kernel positions)."""
    weight: Tensor = layer.weight.detach()
    groups = groups_of(layer)
    return weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)


MIGRATION = 0.5  # SmoothQuant's α: the share of the difficulty that moves to the weights
NORM = ("native_layer_norm",)


def smooth(context: Context) -> Outcome:
    """Rescale each layer norm whose output is read only by int8 linear layers."""
    norms = _norms(context)
    peaks: dict[str, Tensor] = {}

    def receive(norm: str, inputs: tuple[Any, ...], output: Tensor) -> None:
        peak = output.abs().flatten(0, -2).amax(dim=0).float()
        peaks[norm] = torch.maximum(peaks[norm], peak) if norm in peaks else peak

    if norms:
        read_layer_data(context.model, context.runs, norms, receive)
    for norm, peak in peaks.items():
        _move(
            context.model.get_submodule(norm),
            [context.model.get_submodule(layer) for layer in norms[norm]],
            peak,
        )
    return Outcome(
        len(peaks),
        f"smoothing of {counted(len(peaks), 'layer norm')} that int8 linear layers alone read",
    )


def _norms(context: Context) -> dict[str, list[str]]:
    """Layer norms that can be rescaled, and the linear layers that read them."""
    modules = dict(context.model.named_modules())
    widths = {
        name: module.normalized_shape[0]
        for name, module in modules.items()
        if _is_scalable(context, name, module)
    }
    linear = {
        layer
        for layer, name in context.chosen.items()
        if name == "int8" and isinstance(modules[layer], nn.Linear)
    }
    once = {layer for layer in linear if context.graph.entries[layer] == 1}
    return {
        norm: readers.layers
        for norm, readers in sole_consumers(context.graph, widths, NORM, SHAPES, once).items()
    }


def _is_scalable(context: Context, name: str, module: nn.Module) -> bool:
    if (
        type(module) is not nn.LayerNorm
        or module.weight is None
        or len(module.normalized_shape) != 1
    ):
        return False
    weights = [
        context.graph.weights[f"{name}.{parameter}"] for parameter, _ in module.named_parameters()
    ]
    is_shared = any(len(context.graph.readers.get(weight, ())) > 1 for weight in weights)
    return context.graph.entries[name] == 1 and not is_shared and not is_altered(module)


def _move(norm: Any, readers: list[Any], peak: Tensor) -> None:
    weights = torch.stack(
        [layer.weight.detach().float().abs().amax(dim=0) for layer in readers]
    ).amax(dim=0)
    factors = peak.pow(MIGRATION) / weights.pow(1 - MIGRATION)
    factors = torch.where((peak > 0) & (weights > 0), factors, 1.0).to(norm.weight.dtype)
    with torch.no_grad():
        for weight in norm.parameters():
            weight.div_(factors)
        for layer in readers:
            layer.weight.mul_(factors)


RELUS = ("relu", "relu_")
CLAMPS = ("hardtanh", "hardtanh_")
SHAPES = ("view", "_unsafe_view", "detach", "alias")


@dataclass
class Consumers:
    """The layers that read a layer's output, the operators in between, and whether nothing else
    reads it.
    """

    layers: list[str] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    is_alone: bool = True


def sole_consumers(
    graph: Graph,
    makers: Mapping[str, int],
    operators: tuple[str, ...],
    passes: tuple[str, ...],
    readers: set[str],
) -> dict[str, Consumers]:
    """For each maker, with its channels, the `readers` that alone read it through `passes`."""
    flow = Dataflow(graph)
    consumers: dict[str, Consumers] = {}
    for node, operation in enumerate(flow.nodes):
        if operation.layer in makers and operation.name in operators:
            consumer = consumers.setdefault(operation.layer, Consumers())
            for *passed, end in flow.paths(node, passes):
                _note([flow.nodes[at] for at in passed], makers[operation.layer], consumer)
                if flow.nodes[end].layer in readers and flow.nodes[end].name in PRODUCTS:
                    consumer.layers.append(flow.nodes[end].layer)
                else:
                    consumer.is_alone = False
    return {layer: own for layer, own in consumers.items() if own.is_alone and own.layers}


def _note(passed: list[Operation], channels: int, consumers: Consumers) -> None:
    """Record the operators on the way; one that reshapes has to leave the channels last."""
    for operation in passed:
        if operation.name not in SHAPES:
            consumers.passed.add(operation.name)
        elif operation.shapes[0][-1:] != (channels,):
            consumers.is_alone = False
