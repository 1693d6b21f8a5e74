"""Matrix products and attention: the inner dimension goes on both sides, heads go whole."""

from __future__ import annotations

from torch import Tensor

from ..label_space import Labels, unfolded
from .call import Call, rule
from .pointwise import combined


@rule("mm", "addmm", "mv", "addmv")
def product(call: Call) -> list[Labels]:
    """A matrix product, with a bias for addmm and addmv."""
    first = 1 if call.name.startswith("add") else 0
    space = call.space
    inner, rows = space.axes(call.labels(first), (1, 0), call.why)
    if call.args[first + 1].ndim == 1:
        (other,) = space.axes(call.labels(first + 1), (0,), call.why)
        columns = None
    else:
        other, columns = space.axes(call.labels(first + 1), (0, 1), call.why)
    _summed(call, inner, other)
    space.emit(rows, columns)
    space.record_length(call.layer, "in_features", other)
    space.record_length(call.layer, "out_features", columns)
    labels = call.spread((0, rows), (1, columns))
    return [_with_bias(call, labels) if first else labels]


@rule("bmm", "baddbmm")
def products(call: Call) -> list[Labels]:
    """Batched products: the batch dimension varies from one product to the next, as heads do."""
    first = 1 if call.name == "baddbmm" else 0
    space = call.space
    batch, inner, rows = space.axes(call.labels(first), (0, 2, 1), call.why)
    others, other, columns = space.axes(call.labels(first + 1), (0, 1, 2), call.why)
    space.match(batch, others, call.why)
    _summed(call, inner, other)
    space.emit(batch, rows, columns)
    labels = call.spread((0, batch), (1, rows), (2, columns))
    labels = tuple(label for label in labels if space.varies(label))
    return [_with_bias(call, labels) if first else labels]


def _summed(call: Call, inner: Tensor | None, other: Tensor | None) -> None:
    call.space.match(inner, other, call.why)
    call.space.consume(inner, other)


def _with_bias(call: Call, labels: Labels) -> Labels:
    result, bias = call.results[0], call.args[0]
    return combined(
        call.space,
        [(result, labels), (bias, call.labels(0))],
        result.shape,
        f"{call.where} adds values that stay",
    )


@rule(
    "_scaled_dot_product_flash_attention_for_cpu",
    "_scaled_dot_product_flash_attention",
    "_scaled_dot_product_efficient_attention",
    "_scaled_dot_product_attention_math",
    "_scaled_dot_product_cudnn_attention",
    "scaled_dot_product_attention",
    "_scaled_dot_product_fused_attention_overrideable",
)
def attention(call: Call) -> list[Labels]:
    """The unit is a head; a value's width is independent; that of queries and keys sets the scale,
    so it stays.
    """
    space = call.space
    rank = call.results[0].ndim
    heads, _, _ = space.axes(call.labels(0), (rank - 3, rank - 2, rank - 1), call.why)
    keys, _, _ = space.axes(call.labels(1), (rank - 3, rank - 2, rank - 1), call.why)
    values, _, width = space.axes(call.labels(2), (rank - 3, rank - 2, rank - 1), call.why)
    for index in (0, 1):
        space.keep_all_whole(
            call.labels(index), (rank - 2, rank - 1), "attention's scale depends on it"
        )
    space.keep_all_whole(call.labels(2), (rank - 2,), call.why)
    space.match(keys, values, call.why)
    space.match(_shared(call, heads), keys, call.why)
    for tensor in call.tensors[3:]:
        mask = space.keep_all_whole(
            call.known(tensor), [d for d in range(tensor.ndim) if d != tensor.ndim - 3], call.why
        )
        mask_heads = space.axes(mask, (tensor.ndim - 3,), call.why)[0] if tensor.ndim > 2 else None
        if mask_heads is not None or (tensor.ndim > 2 and tensor.shape[-3] > 1):
            space.match(heads, mask_heads, call.why)
    space.record_length(call.layer, "num_heads", heads)
    labels = call.spread((rank - 3, heads), (rank - 1, width))
    return [labels, *[()] * (len(call.results) - 1)]


def _shared(call: Call, heads: Tensor | None) -> Tensor | None:
    """Where several query heads share a key head, they are removed with it."""
    count = call.args[1].shape[-3]
    if heads is None or len(heads) == count:
        return heads
    parts = unfolded(heads, 0, (count, -1))
    call.space.keep_whole(parts, [1], call.why)
    return parts[:, 0]
