"""Round weights so that the layer's output on the calibration data changes least, instead of each
weight to the nearest.

That rounding to the nearest is not best, and that the layer's own output is the objective, is Nagel
et al. (2020), "Up or Down? Adaptive Rounding for Post-Training Quantization", arXiv:2004.10568. The
closed form is that of Frantar et al. (2022), "GPTQ", arXiv:2210.17323: second order, columns one
after the other.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from torch import Tensor

from ...formats import Quantized, integer_bits, quantize
from ...model.layers import CONVOLUTIONS, channel_of, is_linear
from ...records import counted
from .context import Context, Outcome
from .curvature import round_to_hessian
from .layer_data import read_layer_data
from .operands import layer_operands

MAX_BYTES = 2**28  # of Hessians in memory at once


def round_adaptively(context: Context) -> Outcome:
    """Choose the integers of every linear layer and convolution, as many layers at once as memory
    allows for their Hessians.
    """
    count = 0
    for layers in _batches(context):
        for layer, (hessian, rows) in _hessians(context, layers).items():
            context.weights[layer] = _rounded(context, layer, hessian, rows)
            count += 1
    return Outcome(count, f"adaptive rounding of {counted(count, 'layer')}")


def _batches(context: Context) -> Iterator[list[str]]:
    batch: list[str] = []
    room = MAX_BYTES
    for layer in context.chosen:
        module: Any = context.model.get_submodule(layer)
        if not (isinstance(module, CONVOLUTIONS) or is_linear(module)):
            continue
        size = 4 * _groups(module) * (module.weight.numel() // _outputs(module)) ** 2
        if batch and size > room:
            yield batch
            batch, room = [], MAX_BYTES
        batch.append(layer)
        room -= size
    if batch:
        yield batch


def _hessians(context: Context, layers: list[str]) -> dict[str, tuple[Tensor, int]]:
    """X'X of each layer's operands X, (groups, columns, columns), and the number of rows of X."""
    hessians: dict[str, tuple[Tensor, int]] = {}

    def receive(layer: str, inputs: tuple[Any, ...], output: Tensor) -> None:
        rows = layer_operands(context.model.get_submodule(layer), inputs[0])
        hessian, count = hessians.get(layer, (0, 0))
        hessians[layer] = hessian + rows.transpose(1, 2) @ rows, count + rows.shape[1]

    read_layer_data(context.model, context.runs, layers, receive)
    return hessians


def _rounded(context: Context, layer: str, hessian: Tensor, rows: int) -> Quantized:
    """The layer's integers, in the layout that the quantized layer stores."""
    module: Any = context.model.get_submodule(layer)
    # GPT-2's Conv1D, whose weight the int8 layer stores transposed
    is_transposed = context.chosen[layer] == "int8" and channel_of(module) == 1
    weight = module.weight.detach().t() if is_transposed else module.weight.detach()
    channel = 0 if is_transposed else channel_of(module)
    assert channel is not None
    bits = integer_bits(context.chosen[layer], reduced_range=context.reduced_range)
    return round_to_hessian(
        hessian, rows, weight.float(), quantize(weight.float(), bits, channel=channel), bits
    )


def _groups(module: Any) -> int:
    return getattr(module, "groups", 1)


def _outputs(module: Any) -> int:
    return int(module.weight.shape[channel_of(module) or 0])
