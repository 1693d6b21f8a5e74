"""Rescale the channels of neighbouring layers to the same range: the factor divides the first layer
and multiplies the second.

Cross-layer equalisation of Nagel et al. (2019), "Data-Free Quantization Through Weight Equalization
and Bias Correction", arXiv:1906.04721. The model's function does not change, since relu(s·x) =
s·relu(x) for s > 0. That does not hold for relu6.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...model.layers import CONVOLUTIONS
from ...records import counted
from .consumers import CLAMPS, PRODUCTS, RELUS, SHAPES, sole_consumers
from .context import Context, Outcome

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
    """Chosen layers whose output is read only by one other chosen layer of the same kind, and the
    number of such pairs with a clamp in between.
    """
    pairs: list[tuple[str, str]] = []
    clamped = 0
    for kinds, passes in (
        (CONVOLUTIONS, (*RELUS, *CLAMPS)),
        ((nn.Linear,), (*RELUS, *CLAMPS, *SHAPES)),
    ):
        modules = {layer: context.model.get_submodule(layer) for layer in context.chosen}
        widths = {
            layer: module.weight.shape[0]
            for layer, module in modules.items()
            if isinstance(module, kinds)
        }
        once = {
            layer: width for layer, width in widths.items() if context.graph.entries[layer] == 1
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
        weight = _by_input(second) * scales.reshape(_groups(second), 1, -1, 1)
        second.weight.copy_(weight.reshape(second.weight.shape))
    return float(scales.log().abs().max())


def _scale_outputs(layer: Any, scales: Tensor) -> None:
    layer.weight.mul_(scales.reshape(-1, *(1,) * (layer.weight.ndim - 1)))
    if layer.bias is not None:
        layer.bias.mul_(scales)


def _by_input(layer: Any) -> Tensor:
    """A weight as (groups, outputs of a group, inputs of a group, kernel positions)."""
    weight: Tensor = layer.weight.detach()
    groups = _groups(layer)
    return weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)


def _groups(layer: Any) -> int:
    return getattr(layer, "groups", 1)
