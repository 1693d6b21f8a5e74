"""The mean error of each output channel, which rounding makes, taken out again by the bias."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...records import counted
from .context import Context, Outcome
from .layer_data import read_layer_data


def correct_bias(context: Context) -> Outcome:
    """Run the float layers and the quantized ones side by side once over the data, and shift by
    what is between them.
    """
    layers = {layer: one for layer, one in context.layers().items() if one.kind != "Embedding"}
    totals: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def receive(layer: str, inputs: tuple[Any, ...], output: Tensor) -> None:
        missing = (output - layers[layer](*inputs)).float()
        rows = missing.movedim(_channel(context, layer), -1).flatten(0, -2)
        totals[layer] = totals.get(layer, 0) + rows.double().sum(dim=0)
        counts[layer] = counts.get(layer, 0) + len(rows)

    read_layer_data(context.model, context.runs, layers, receive)
    context.shifts = {
        layer: (total / counts[layer]).float() for layer, total in totals.items() if counts[layer]
    }
    return Outcome(
        len(context.shifts), f"bias correction of {counted(len(context.shifts), 'layer')}"
    )


def _channel(context: Context, layer: str) -> int:
    """Which dimension of a layer's output is its output channels, from the last."""
    return -1 - len(getattr(context.model.get_submodule(layer), "kernel_size", ()))
