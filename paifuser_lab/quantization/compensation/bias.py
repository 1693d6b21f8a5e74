"""Correct the mean error that rounding causes in each output channel, in the bias."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...records import counted
from .context import Context, Outcome
from .layer_data import read_layer_data


def correct_bias(context: Context) -> Outcome:
    """Run the float and the quantized layers side by side over the data, and add the mean
    difference to the bias.
    """
    layers = {name: layer for name, layer in context.layers().items() if layer.kind != "Embedding"}
    totals: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def receive(layer: str, inputs: tuple[Any, ...], output: Tensor) -> None:
        difference = (output - layers[layer](*inputs)).float()
        rows = difference.movedim(_channel(context, layer), -1).flatten(0, -2)
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
    """The dimension of a layer's output that is its channels, counted from the last."""
    return -1 - len(getattr(context.model.get_submodule(layer), "kernel_size", ()))
