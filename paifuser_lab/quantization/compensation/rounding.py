"""Round weights so that the layer's output on the calibration data changes least, instead of each
weight to the nearest.

That rounding to the nearest is not best, and that the layer's own output is the objective, is Nagel
et al. (2020), "Up or Down? Adaptive Rounding for Post-Training Quantization", arXiv:2004.10568. The
closed form is that of Frantar et al. (2022), "GPTQ", arXiv:2210.17323: second order, columns one
after the other.

With H = X'X the change is the sum of e H e' over the rows e of rounding errors. GPTQ rounds column
after column and compensates the error in the columns that follow. Written as LDLQ (Chee et al.
2023, arXiv:2307.13304) that is one Cholesky factor H = R R' with R upper triangular: column i is
rounded from w_i + Σ_{j<i} e_j R_ji / R_ii.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from ...errors import stop_if_asked
from ...model.formats import Quantized, integer_bits, quantize
from ...model.layers import CONVOLUTIONS, channel_of, is_linear
from ...progress import progress
from ...records import counted
from .context import Context, Outcome, read_layer_data
from .operands import groups_of, layer_operands

MAX_BYTES = 2**28  # of Hessians in memory at once


def round_adaptively(context: Context) -> Outcome:
    """Choose the integers of linear layers and convolutions, as many as memory allows at once."""
    count, batches = 0, list(_batches(context))
    with progress("adaptive rounding", sum(map(len, batches))) as shown:
        for layers in batches:
            for layer, (hessian, rows) in _hessians(context, layers).items():
                stop_if_asked(context.should_stop)
                context.weights[layer] = _rounded(context, layer, hessian, rows)
                count += 1
                shown.advance(doing=layer)
    return Outcome(count, f"adaptive rounding of {counted(count, 'layer')}")


def _batches(context: Context) -> Iterator[list[str]]:
    batch: list[str] = []
    room = MAX_BYTES
    for layer in context.chosen:
        module: Any = context.model.get_submodule(layer)
        if not (isinstance(module, CONVOLUTIONS) or is_linear(module)):
            continue
        columns = module.weight.numel() // module.weight.shape[channel_of(module) or 0]
        size = 4 * groups_of(module) * columns**2
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


# of the mean of the Hessian's diagonal: weights that the data hardly constrains keep their value
DAMPING = 0.01
BLOCK = 128  # columns that are compensated together


def round_to_hessian(
    hessian: Tensor, count: int, weight: Tensor, plain: Quantized, bits: int
) -> Quantized:
    """Choose new integers for the same scales; a channel that gains nothing keeps its own."""
    groups, columns = hessian.shape[:2]
    rows = weight.transpose(0, plain.channel).reshape(groups, -1, columns)
    values = plain.values.transpose(0, plain.channel).reshape(rows.shape).float()
    scales = plain.scales.repeat_interleave(columns // plain.scales.shape[1], dim=1).reshape(
        rows.shape
    )
    # the columns that matter most are rounded first
    order = hessian.diagonal(dim1=1, dim2=2).argsort(dim=1, descending=True)
    rounded = _round_columns(
        _ordered(_shrunk(hessian, count), order),
        _columns(rows, order),
        _columns(scales, order),
        2 ** (bits - 1) - 1,
    )
    rounded = _columns(rounded, order.argsort(dim=1))
    is_better = _change(hessian, rows - rounded * scales) < _change(hessian, rows - values * scales)
    integers = torch.where(is_better.unsqueeze(-1), rounded, values).to(torch.int8)
    transposed = plain.values.transpose(0, plain.channel)
    return Quantized(
        integers.reshape(transposed.shape).transpose(0, plain.channel).contiguous(),
        plain.scales,
        plain.channel,
    )


def _shrunk(hessian: Tensor, count: int) -> Tensor:
    """Shrink the off-diagonal by the share of it that so few rows would show at random.

    The share is that of Schäfer and Strimmer (2005, doi:10.2202/1544-6115.1175), with the variance
    of products of normal numbers.
    """
    diagonal = hessian.diagonal(dim1=1, dim2=2)
    own = diagonal.double().square().sum(dim=1)
    common = hessian.double().square().sum(dim=(1, 2)) - own
    expected = (diagonal.double().sum(dim=1).square() - own + common) / max(count, 1)
    share = torch.where(common > 0, expected / common, 1.0).clamp(max=1).to(hessian.dtype)
    return torch.lerp(hessian, torch.diag_embed(diagonal), share.reshape(-1, 1, 1))


def _round_columns(hessian: Tensor, rows: Tensor, scales: Tensor, limit: int) -> Tensor:
    """Round column after column, each from its value plus the error of earlier columns."""
    factor = _upper_factor(hessian)
    propagation = factor / factor.diagonal(dim1=1, dim2=2).unsqueeze(1)
    values, errors = torch.zeros_like(rows), torch.zeros_like(rows)
    for start in range(0, rows.shape[2], BLOCK):
        end = min(start + BLOCK, rows.shape[2])
        targets = rows[..., start:end] + errors[..., :start] @ propagation[:, :start, start:end]
        for column in range(start, end):
            correction = (
                errors[..., start:column] @ propagation[:, start:column, column : column + 1]
            )
            target = targets[..., column - start] + correction.squeeze(-1)
            values[..., column] = (target / scales[..., column]).round().clamp(-limit, limit)
            errors[..., column] = rows[..., column] - values[..., column] * scales[..., column]
    return values


def _upper_factor(hessian: Tensor) -> Tensor:
    """R of H = R R', upper triangular: the Cholesky factor, computed from the last column."""
    mean = hessian.diagonal(dim1=1, dim2=2).mean(dim=1)
    damping = torch.where(mean > 0, mean * DAMPING, 1.0)
    damped = hessian + damping.reshape(-1, 1, 1) * torch.eye(
        hessian.shape[1], device=hessian.device
    )
    lower: Tensor = torch.linalg.cholesky(damped.flip(1, 2))
    return lower.flip(1, 2)


def _change(hessian: Tensor, errors: Tensor) -> Tensor:
    """How much each channel's output changes."""
    return ((errors @ hessian) * errors).sum(dim=2)


def _columns(rows: Tensor, order: Tensor) -> Tensor:
    return rows.gather(2, order.unsqueeze(1).expand_as(rows))


def _ordered(hessian: Tensor, order: Tensor) -> Tensor:
    rows = hessian.gather(1, order.unsqueeze(2).expand_as(hessian))
    return _columns(rows, order)
