"""Convolution, plain, in groups and transposed, and the norms that work on channels."""

from __future__ import annotations

from torch import Tensor

from ..label_space import Labels, spread, unfolded
from .call import Call, each, rule
from .pointwise import combined


@rule("convolution", "_convolution", "mkldnn_convolution", "cudnn_convolution")
def convolution(call: Call) -> list[Labels]:
    """Channels in, channels out; in groups either whole groups are lost, or the same places of
    each.
    """
    space, is_transposed, groups = (
        call.space,
        call.argument(6, "transposed", False),
        call.argument(8, "groups", 1),
    )
    result = call.results[0]
    (given,) = space.axes(call.labels(0), (1,), call.why)
    first, second = space.axes(call.labels(1), (0, 1), call.why)
    reads, makes = (first, second) if is_transposed else (second, first)
    if groups == 1:
        space.match(given, reads, call.why)
    elif is_transposed:
        makes = _in_transposed_groups(call, given, reads, makes, groups)
    else:
        makes = _in_groups(call, given, reads, makes, groups)
    bias = call.args[2]
    if isinstance(bias, Tensor):
        (along,) = space.axes(call.known(bias), (0,), call.why)
        space.match(makes, along, call.why)
    space.emit(makes)
    space.consume(given, reads)
    space.note(call.layer, "in_channels", given)
    space.note(call.layer, "out_channels", makes)
    return [each([None if makes is None else spread(makes, 1, result.shape)])]


def _in_groups(
    call: Call, given: Tensor | None, reads: Tensor | None, makes: Tensor | None, groups: int
) -> Tensor | None:
    space = call.space
    if makes is None or given is None:
        _hold(call, given, reads, makes)
        return makes
    into, out = unfolded(given, 0, (groups, -1)), unfolded(makes, 0, (groups, -1))
    if reads is None or (groups >= into.shape[1] and not _is_fixed(call, given, makes)):
        _whole_groups(call, into, out)
        space.match(reads, None, call.why)
    else:
        space.unite(into, spread(reads, 1, into.shape))
        space.unite(out, out[:1])
    return makes


def _in_transposed_groups(
    call: Call, given: Tensor | None, reads: Tensor | None, makes: Tensor | None, groups: int
) -> Tensor | None:
    """Its weight has the channels that it reads first and those of one group that it makes
    second.
    """
    if given is None or reads is None:
        _hold(call, given, reads, makes)
        return None
    space = call.space
    space.unite(given, reads)
    into = unfolded(given, 0, (groups, -1))
    if makes is None:  # one channel out of each group
        _whole_groups(call, into, into)
        return into[:, 0].contiguous()
    space.unite(into, into[:1])
    return makes.repeat(groups)


def _whole_groups(call: Call, into: Tensor, out: Tensor) -> None:
    into, out = call.space.whole(into, [1], call.why), call.space.whole(out, [1], call.why)
    call.space.unite(into[:, :1], out[:, :1])
    call.space.note(call.layer, "groups", into[:, 0].contiguous())


def _hold(call: Call, *rows: Tensor | None) -> None:
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
    """Each channel by itself, with figures of its own."""
    space, result = call.space, call.results[0]
    (given,) = space.axes(call.labels(0), (1,), call.why)
    for tensor in call.tensors[1:]:
        (row,) = space.axes(call.known(tensor), (0,), call.why)
        space.match(given, row, call.why)
    space.note(call.layer, "num_features", given)
    space.emit(given)
    made = each([None if given is None else spread(given, 1, result.shape)])
    return [made, *[()] * (len(call.results) - 1)]


@rule("native_group_norm")
def group_norm(call: Call) -> list[Labels]:
    """A group is normalised as one, so it is lost as one."""
    space, result = call.space, call.results[0]
    groups = call.args[6]
    (given,) = space.axes(call.labels(0), (1,), call.why)
    if given is not None:
        parts = unfolded(given, 0, (groups, -1))
        space.whole(parts, [1], call.why)
        space.note(call.layer, "num_groups", parts[:, 0].contiguous())
        space.note(call.layer, "num_channels", given)
    for tensor in call.tensors[1:]:
        (row,) = space.axes(call.known(tensor), (0,), call.why)
        space.match(given, row, call.why)
    return [
        each([None if given is None else spread(given, 1, result.shape)]),
        *[()] * (len(call.results) - 1),
    ]


@rule("native_layer_norm", "_fused_rms_norm", "rms_norm")
def layer_norm(call: Call) -> list[Labels]:
    """Everything along the last dimensions changes with everything else there."""
    space, tensor = call.space, call.args[0]
    dims = range(tensor.ndim - len(call.args[1]), tensor.ndim)
    operands = [
        (one, space.wholes(call.known(one), dims if one is tensor else range(one.ndim), call.why))
        for one in call.tensors
    ]
    made = combined(space, operands, tensor.shape, call.why)
    return [made, *[()] * (len(call.results) - 1)]
