"""Channels of neighbouring layers rescaled to the same range: what the first makes smaller, the
second makes larger.

Cross-layer equalisation of Nagel et al. (2019), "Data-Free Quantization Through Weight Equalization
and Bias Correction", arXiv:1906.04721. The model's function stays as it is, since relu(s·x) =
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

MOST_SWEEPS = 20
SETTLED = 1e-3  # a sweep that changes no scale by more is the last


def equalise(context: Context) -> Outcome:
    """Rescale pair after pair, over and over, since a layer between two others is in two pairs."""
    pairs, clamped = _pairs(context)
    for _ in range(MOST_SWEEPS if pairs else 0):
        if (
            max(
                _rescale(context.model.get_submodule(one), context.model.get_submodule(other))
                for one, other in pairs
            )
            < SETTLED
        ):
            break
    left = (
        f" ({counted(clamped, 'pair')} left alone: a clamp such as relu6 stands between, which "
        "does not scale)"
        if clamped
        else ""
    )
    return Outcome(
        len(pairs), f"cross-layer equalisation of {counted(len(pairs), 'pair')} of layers{left}"
    )


def _pairs(context: Context) -> tuple[list[tuple[str, str]], int]:
    """Chosen layers whose output one other chosen layer of the same sort reads alone, and how many
    more there are behind a clamp.
    """
    pairs: list[tuple[str, str]] = []
    clamped = 0
    for kinds, passes in (
        (CONVOLUTIONS, (*RELUS, *CLAMPS)),
        ((nn.Linear,), (*RELUS, *CLAMPS, *SHAPES)),
    ):
        modules = {layer: context.model.get_submodule(layer) for layer in context.chosen}
        widths = {
            layer: one.weight.shape[0] for layer, one in modules.items() if isinstance(one, kinds)
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


def _rescale(one: Any, other: Any) -> float:
    """Make the ranges of the channels between two layers agree; by how much that changed any, in
    powers of e.
    """
    makes = one.weight.detach().flatten(1).abs().amax(dim=1)
    takes = _by_input(other).abs().amax(dim=(1, 3)).flatten()
    scales = torch.where(
        (makes > 0) & (takes > 0), (makes.double() / takes.double()).sqrt(), 1.0
    ).to(makes.dtype)
    with torch.no_grad():
        _scale_outputs(one, 1 / scales)
        weight = _by_input(other) * scales.reshape(_groups(other), 1, -1, 1)
        other.weight.copy_(weight.reshape(other.weight.shape))
    return float(scales.log().abs().max())


def _scale_outputs(layer: Any, scales: Tensor) -> None:
    layer.weight.mul_(scales.reshape(-1, *(1,) * (layer.weight.ndim - 1)))
    if layer.bias is not None:
        layer.bias.mul_(scales)


def _by_input(layer: Any) -> Tensor:
    """A weight as (groups, outputs of a group, inputs of a group, taps)."""
    weight: Tensor = layer.weight.detach()
    groups = _groups(layer)
    return weight.reshape(groups, weight.shape[0] // groups, weight.shape[1], -1)


def _groups(layer: Any) -> int:
    return getattr(layer, "groups", 1)
