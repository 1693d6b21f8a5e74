"""The mean error of each output channel, which rounding makes, taken out again by the bias."""

from __future__ import annotations

from typing import Any

from torch import Tensor

from ...records import counted
from .context import Done, Scene
from .layer_data import read


def correct_bias(scene: Scene) -> Done:
    """Run the float layers and those of whole numbers side by side once over the data, and shift by
    what is between them.
    """
    layers = {layer: one for layer, one in scene.layers().items() if one.kind != "Embedding"}
    totals: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def take(layer: str, given: tuple[Any, ...], answer: Tensor) -> None:
        missing = (answer - layers[layer](*given)).float()
        rows = missing.movedim(_channel(scene, layer), -1).flatten(0, -2)
        totals[layer] = totals.get(layer, 0) + rows.double().sum(dim=0)
        counts[layer] = counts.get(layer, 0) + len(rows)

    read(scene.model, scene.runs, layers, take)
    scene.shifts = {
        layer: (total / counts[layer]).float() for layer, total in totals.items() if counts[layer]
    }
    return Done(len(scene.shifts), f"bias correction of {counted(len(scene.shifts), 'layer')}")


def _channel(scene: Scene, layer: str) -> int:
    """Which dimension of a layer's answer is its output channels, from the last."""
    return -1 - len(getattr(scene.model.get_submodule(layer), "kernel_size", ()))
