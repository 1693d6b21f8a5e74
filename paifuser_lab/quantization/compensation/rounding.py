"""Weights rounded so that the layer's answer on the calibration data changes least, not each weight
by itself.

That rounding to the nearest is not best, and that the layer's own answer is the thing to keep, is
Nagel et al. (2020), "Up or Down? Adaptive Rounding for Post-Training Quantization",
arXiv:2004.10568. The closed form is that of Frantar et al. (2022), "GPTQ", arXiv:2210.17323: second
order, columns one after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from ...formats import Quantized, format_of, quantize
from ...model.layers import CONVOLUTIONS, channel_of, is_linear
from ...records import counted
from .context import Done, Scene
from .curvature import rounded_by
from .layer_data import read
from .operands import multiplied

MOST_BYTES = 2**28  # of Hessians held at once


def round_adaptively(scene: Scene) -> Done:
    """Choose the whole numbers of every linear layer and convolution, as many at once as their
    Hessians have room for.
    """
    count = 0
    for layers in _batches(scene):
        for layer, (hessian, rows) in _hessians(scene, layers).items():
            scene.numbers[layer] = _rounded(scene, layer, hessian, rows)
            count += 1
    return Done(count, f"adaptive rounding of {counted(count, 'layer')}")


def _batches(scene: Scene) -> Iterator[list[str]]:
    batch: list[str] = []
    room = MOST_BYTES
    for layer in scene.chosen:
        module: Any = scene.model.get_submodule(layer)
        if not (isinstance(module, CONVOLUTIONS) or is_linear(module)):
            continue
        size = 4 * _groups(module) * (module.weight.numel() // _outputs(module)) ** 2
        if batch and size > room:
            yield batch
            batch, room = [], MOST_BYTES
        batch.append(layer)
        room -= size
    if batch:
        yield batch


def _hessians(scene: Scene, layers: list[str]) -> dict[str, tuple[Tensor, int]]:
    """X'X of what each layer multiplies its weights by, (groups, columns, columns), and of how many
    rows X is.
    """
    found: dict[str, tuple[Tensor, int]] = {}

    def take(layer: str, given: tuple[Any, ...], answer: Tensor) -> None:
        rows = multiplied(scene.model.get_submodule(layer), given[0])
        hessian, count = found.get(layer, (0, 0))
        found[layer] = hessian + rows.transpose(1, 2) @ rows, count + rows.shape[1]

    read(scene.model, scene.runs, layers, take)
    return found


def _rounded(scene: Scene, layer: str, hessian: Tensor, rows: int) -> Quantized:
    """The layer's whole numbers, in the order in which it wants them."""
    module: Any = scene.model.get_submodule(layer)
    is_turned = (
        scene.chosen[layer] == "int8" and channel_of(module) == 1
    )  # GPT-2's, which int8 turns round
    weight = module.weight.detach().t() if is_turned else module.weight.detach()
    channel = 0 if is_turned else channel_of(module)
    assert channel is not None
    bits = format_of(scene.chosen[layer]).weight_bits
    return rounded_by(
        hessian, rows, weight.float(), quantize(weight.float(), bits, channel=channel), bits
    )


def _groups(module: Any) -> int:
    return getattr(module, "groups", 1)


def _outputs(module: Any) -> int:
    return int(module.weight.shape[channel_of(module) or 0])
