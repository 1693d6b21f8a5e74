"""Convolutions, matrix products and attention, each with the channel ids along its sizes."""

from __future__ import annotations

from collections.abc import Callable
from math import prod

from torch import Tensor

from ...model.tensors import is_channels_last
from .label_space import Product, Row, Shape, along
from .rules import RULES, Call, convolution
from .rules import products as matrices
from .rules.call import Rule


def products_of(call: Call) -> list[Product]:
    """The products of an operator, after its rule; none for most operators."""
    products = _PRODUCTS.get(call.name)
    return [] if products is None else products(call)


def _convolution(call: Call) -> list[Product]:
    inputs, weight, output = call.args[0], call.args[1], call.results[0]
    is_transposed, groups = call.argument(6, "transposed", False), call.argument(8, "groups", 1)
    rows, columns = _row(call, weight, 0), _row(call, weight, 1)
    window = inputs if is_transposed else output
    shape = Shape(
        "transposed convolution" if is_transposed else "convolution",
        (inputs.shape[0], *inputs.shape[2:]),
        kernel=tuple(weight.shape[2:]),
        stride=tuple(call.argument(3, "stride")),
        padding=tuple(call.argument(4, "padding")),
        dilation=tuple(call.argument(5, "dilation")),
        output_padding=tuple(call.argument(7, "output_padding", ())),
        groups=groups,
        has_bias=call.args[2] is not None,
        is_channels_last=is_channels_last(inputs) or is_channels_last(weight),
        dtype=weight.dtype,
        device=weight.device.type,
    )
    positions = window.shape[0] * prod(window.shape[2:])
    output_times = groups * output.shape[0] * prod(output.shape[2:]) if is_transposed else positions
    sizes = (columns, rows) if is_transposed else (rows, columns)
    return [
        Product(
            call.layer, shape, positions * prod(weight.shape[2:]), sizes, output_times, sizes[:1]
        )
    ]


def _product(call: Call) -> list[Product]:
    first = 1 if call.name.startswith("add") else 0
    left, right = call.args[first : first + 2]
    rows, inner = _row(call, left, 0), _row(call, left, 1)
    columns: Row = _row(call, right, 1) if right.ndim > 1 else 1
    shape = Shape(
        "product", (left.shape[0],), has_bias=bool(first), dtype=left.dtype, device=left.device.type
    )
    return [Product(call.layer, shape, 1, (rows, inner, columns), 1, (rows, columns))]


def _products(call: Call) -> list[Product]:
    first = 1 if call.name == "baddbmm" else 0
    left, right = call.args[first : first + 2]
    many, rows, inner, columns = (
        _row(call, *side) for side in ((left, 0), (left, 1), (left, 2), (right, 2))
    )
    shape = Shape("products", tuple(left.shape[:2]), dtype=left.dtype, device=left.device.type)
    return [Product(call.layer, shape, 1, (many, rows, inner, columns), 1, (many, rows, columns))]


def _attention(call: Call) -> list[Product]:
    """Queries times keys, and the weights times values."""
    query, key, value = call.args[:3]
    rank = query.ndim
    heads, width, own = (
        _row(call, query, rank - 3),
        _row(call, query, rank - 1),
        _row(call, value, rank - 1),
    )
    batch = prod(query.shape[: rank - 3])
    shape = Shape("attention", tuple(query.shape[:-1]), dtype=query.dtype, device=query.device.type)
    pairs = batch * query.shape[-2] * key.shape[-2]
    scores = Product(call.layer, shape, pairs, (heads, width), 0, ())
    return [
        scores,
        Product(call.layer, shape, pairs, (heads, own), batch * query.shape[-2], (heads, own)),
    ]


def _row(call: Call, tensor: Tensor, dim: int) -> Row:
    for label in call.known(tensor):
        if dim in call.space.varies(label):
            return along(label, dim).numpy()
    return int(tensor.shape[dim])


_BY_RULE: dict[Rule, Callable[[Call], list[Product]]] = {
    convolution.convolution: _convolution,
    matrices.product: _product,
    matrices.products: _products,
    matrices.attention: _attention,
}
_PRODUCTS = {name: _BY_RULE[rule] for name, rule in RULES.items() if rule in _BY_RULE}
