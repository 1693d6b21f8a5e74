"""Convolutions, plain, grouped and transposed, and the norms that work on channels."""

from __future__ import annotations

from torch import Tensor

from ..label_space import Labels, spread, unfolded
from .call import Call, rule
from .pointwise import combined


@rule("convolution", "_convolution", "mkldnn_convolution", "cudnn_convolution")
def convolution(call: Call) -> list[Labels]:
    """Input and output channels; with groups, either whole groups are removed or the same positions
    of each.
    """
    space, is_transposed, groups = (
        call.space,
        call.argument(6, "transposed", False),
        call.argument(8, "groups", 1),
    )
    (inputs,) = space.axes(call.labels(0), (1,), call.why)
    first, second = space.axes(call.labels(1), (0, 1), call.why)
    reads, makes = (first, second) if is_transposed else (second, first)
    if groups == 1:
        space.match(inputs, reads, call.why)
    elif is_transposed:
        makes = _in_transposed_groups(call, inputs, reads, makes, groups)
    else:
        makes = _in_groups(call, inputs, reads, makes, groups)
    bias = call.args[2]
    if isinstance(bias, Tensor):
        (along,) = space.axes(call.known(bias), (0,), call.why)
        space.match(makes, along, call.why)
    space.emit(makes)
    space.consume(inputs, reads)
    space.record_length(call.layer, "in_channels", inputs)
    space.record_length(call.layer, "out_channels", makes)
    return [call.spread((1, makes))]


def _in_groups(
    call: Call, inputs: Tensor | None, reads: Tensor | None, makes: Tensor | None, groups: int
) -> Tensor | None:
    space = call.space
    if makes is None or inputs is None:
        _keep_whole(call, inputs, reads, makes)
        return makes
    into, out = unfolded(inputs, 0, (groups, -1)), unfolded(makes, 0, (groups, -1))
    if reads is None or (groups >= into.shape[1] and not _is_fixed(call, inputs, makes)):
        _whole_groups(call, into, out)
        space.match(reads, None, call.why)
    else:
        space.unite(into, spread(reads, 1, into.shape))
        space.unite(out, out[:1])
    return makes


def _in_transposed_groups(
    call: Call, inputs: Tensor | None, reads: Tensor | None, makes: Tensor | None, groups: int
) -> Tensor | None:
    """The weight has the input channels first, and the output channels of one group second."""
    if inputs is None or reads is None:
        _keep_whole(call, inputs, reads, makes)
        return None
    space = call.space
    space.unite(inputs, reads)
    into = unfolded(inputs, 0, (groups, -1))
    if makes is None:  # one output channel per group
        _whole_groups(call, into, into)
        return into[:, 0].contiguous()
    space.unite(into, into[:1])
    return makes.repeat(groups)


def _whole_groups(call: Call, into: Tensor, out: Tensor) -> None:
    into, out = (
        call.space.keep_whole(into, [1], call.why),
        call.space.keep_whole(out, [1], call.why),
    )
    call.space.unite(into[:, :1], out[:, :1])
    call.space.record_length(call.layer, "groups", into[:, 0].contiguous())


def _keep_whole(call: Call, *rows: Tensor | None) -> None:
    for row in rows:
        call.space.match(row, None, call.why)


def _is_fixed(call: Call, *rows: Tensor) -> bool:
    channel_ids = call.space.channel_ids
    return any(
        int(root) in channel_ids.fixed for row in rows for root in channel_ids.roots(row.numpy())
    )


@rule(
    "native_batch_norm",
    "_native_batch_norm_legit",
    "_native_batch_norm_legit_no_training",
    "cudnn_batch_norm",
    "miopen_batch_norm",
    "_batch_norm_with_update",
    "_native_batch_norm_legit_functional",
)
def batch_norm(call: Call) -> list[Labels]:
    """Each channel by itself, with its own statistics."""
    space = call.space
    (channels,) = space.axes(call.labels(0), (1,), call.why)
    for tensor in call.tensors[1:]:
        (row,) = space.axes(call.known(tensor), (0,), call.why)
        space.match(channels, row, call.why)
    space.record_length(call.layer, "num_features", channels)
    space.emit(channels)
    return [call.spread((1, channels)), *[()] * (len(call.results) - 1)]


@rule("native_group_norm")
def group_norm(call: Call) -> list[Labels]:
    """A group is normalised together, so it is removed as a whole."""
    space = call.space
    groups = call.args[6]
    (channels,) = space.axes(call.labels(0), (1,), call.why)
    if channels is not None:
        parts = unfolded(channels, 0, (groups, -1))
        space.keep_whole(parts, [1], call.why)
        space.record_length(call.layer, "num_groups", parts[:, 0].contiguous())
        space.record_length(call.layer, "num_channels", channels)
    for tensor in call.tensors[1:]:
        (row,) = space.axes(call.known(tensor), (0,), call.why)
        space.match(channels, row, call.why)
    return [call.spread((1, channels)), *[()] * (len(call.results) - 1)]


@rule("native_layer_norm", "_fused_rms_norm", "rms_norm")
def layer_norm(call: Call) -> list[Labels]:
    """Every value along the last dimensions depends on every other there."""
    space, tensor = call.space, call.args[0]
    dims = range(tensor.ndim - len(call.args[1]), tensor.ndim)
    operands = [
        (
            operand,
            space.keep_all_whole(
                call.known(operand), dims if operand is tensor else range(operand.ndim), call.why
            ),
        )
        for operand in call.tensors
    ]
    labels = combined(space, operands, tensor.shape, call.why)
    return [labels, *[()] * (len(call.results) - 1)]
