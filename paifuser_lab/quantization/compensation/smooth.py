"""Move outliers from a layer norm's output into the weights that read it, where they are easier to
round.

SmoothQuant of Xiao et al. (2022), arXiv:2211.10438. The norm's output is divided by a factor for
each channel and the weights are multiplied by it, so the model's function does not change.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, nn

from ...model.layers import is_altered
from ...records import counted
from .consumers import SHAPES, sole_consumers
from .context import Context, Outcome
from .layer_data import read_layer_data

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
