"""Matrix products and attention: what is summed over is lost on both sides, heads are lost
whole.
"""

from __future__ import annotations

from torch import Tensor

from ..label_space import Labels, spread, unfolded
from .call import Call, each, rule
from .pointwise import combined


@rule("mm", "addmm", "mv", "addmv")
def product(call: Call) -> list[Labels]:
    """Rows times columns, and a bias."""
    first = 1 if call.name.startswith("add") else 0
    result, space = call.results[0], call.space
    inner, rows = space.axes(call.labels(first), (1, 0), call.why)
    if call.args[first + 1].ndim == 1:
        (other,) = space.axes(call.labels(first + 1), (0,), call.why)
        columns = None
    else:
        other, columns = space.axes(call.labels(first + 1), (0, 1), call.why)
    _summed(call, inner, other)
    space.emit(rows, columns)
    space.note(call.layer, "in_features", other)
    space.note(call.layer, "out_features", columns)
    made = each(
        None if row is None else spread(row, dim, result.shape)
        for dim, row in ((0, rows), (1, columns))
    )
    return [_with_bias(call, made) if first else made]


@rule("bmm", "baddbmm")
def products(call: Call) -> list[Labels]:
    """The same many times over: what varies from one product to the next, such as heads, comes
    first.
    """
    first = 1 if call.name == "baddbmm" else 0
    result, space = call.results[0], call.space
    batch, inner, rows = space.axes(call.labels(first), (0, 2, 1), call.why)
    others, other, columns = space.axes(call.labels(first + 1), (0, 1, 2), call.why)
    space.match(batch, others, call.why)
    _summed(call, inner, other)
    space.emit(batch, rows, columns)
    made = each(
        None if row is None else spread(row, dim, result.shape)
        for dim, row in ((0, batch), (1, rows), (2, columns))
    )
    made = tuple(label for label in made if space.varies(label))
    return [_with_bias(call, made) if first else made]


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
    """Heads are the unit; a value's width is its own; that of queries and keys sets the scale, so
    it stays.
    """
    space, result = call.space, call.results[0]
    rank = result.ndim
    heads, _, _ = space.axes(call.labels(0), (rank - 3, rank - 2, rank - 1), call.why)
    keys, _, _ = space.axes(call.labels(1), (rank - 3, rank - 2, rank - 1), call.why)
    values, _, width = space.axes(call.labels(2), (rank - 3, rank - 2, rank - 1), call.why)
    for index in (0, 1):
        space.wholes(call.labels(index), (rank - 2, rank - 1), "attention's scale depends on it")
    space.wholes(call.labels(2), (rank - 2,), call.why)
    space.match(keys, values, call.why)
    space.match(_shared(call, heads, keys), keys, call.why)
    for tensor in call.tensors[3:]:
        mask = space.wholes(
            call.known(tensor), [d for d in range(tensor.ndim) if d != tensor.ndim - 3], call.why
        )
        over = space.axes(mask, (tensor.ndim - 3,), call.why)[0] if tensor.ndim > 2 else None
        if over is not None or (tensor.ndim > 2 and tensor.shape[-3] > 1):
            space.match(heads, over, call.why)
    space.note(call.layer, "num_heads", heads)
    made = each(
        None if row is None else spread(row, dim, result.shape)
        for dim, row in ((rank - 3, heads), (rank - 1, width))
    )
    return [made, *[()] * (len(call.results) - 1)]


def _shared(call: Call, heads: Tensor | None, keys: Tensor | None) -> Tensor | None:
    """Where several queries' heads share one of the keys, they are lost with it."""
    count = call.args[1].shape[-3]
    if heads is None or len(heads) == count:
        return heads
    parts = unfolded(heads, 0, (count, -1))
    call.space.whole(parts, [1], call.why)
    return parts[:, 0]
