"""Arithmetic of shapes, which exported files write as operators on small tensors of integers.

It becomes arithmetic of Python integers, so that a reshape of the module reads as in torch, and
stays right for another batch.
"""

from __future__ import annotations

import operator as python
from collections.abc import Callable
from typing import Any

from ...limits import NotConvertibleError
from ...tree import Size
from .registry import SIZE_RULES, Call, Sizes, operator

ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "Add": python.add,
    "Sub": python.sub,
    "Mul": python.mul,
    "Div": python.floordiv,
    "Mod": python.mod,
    "Equal": python.eq,
    "Greater": python.gt,
    "Less": python.lt,
}


@operator("Shape")
def shape(call: Call) -> Sizes:
    """The sizes of a tensor, or some of them."""
    value, rank = call.value(0), call.rank(0)
    axes = range(rank)[slice(call.attribute("start", 0), call.attribute("end"))]
    return Sizes(tuple(call.tree.size(value, axis) for axis in axes))


@operator("Size")
def size(call: Call) -> Sizes:
    total = call.tree.number(1)
    for item in shape(call).items:
        total = call.tree.arithmetic(python.mul, total, item)
    return Sizes((total,), is_scalar=True)


def _all(call: Call) -> list[Sizes] | None:
    """All inputs as integers; None if one is not."""
    each = [call.known(index) for index in range(len(call.inputs))]
    found = [sizes for sizes in each if sizes is not None]
    return found if len(found) == len(each) else None


@operator(*ARITHMETIC, table=SIZE_RULES)
def _arithmetic(call: Call) -> Sizes | None:
    both = _all(call)
    if both is None or len(both) != 2:
        return None
    left, right = both
    count = max(len(left.items), len(right.items))
    if {len(left.items), len(right.items)} - {1, count}:
        return None
    pairs = zip(_repeated(left, count), _repeated(right, count), strict=True)
    function = ARITHMETIC[call.node.op_type]
    try:
        items = tuple(call.tree.arithmetic(function, a, b) for a, b in pairs)
    except ZeroDivisionError as error:
        raise NotConvertibleError("it divides by zero") from error
    return Sizes(items, left.is_scalar and right.is_scalar)


def _repeated(sizes: Sizes, count: int) -> tuple[Size, ...]:
    return sizes.items * count if len(sizes.items) == 1 else sizes.items


@operator("Gather", table=SIZE_RULES)
def _gather(call: Call) -> Sizes | None:
    both = _all(call)
    if both is None:
        return None
    chosen = [item.value for item in both[1].items]
    if not all(isinstance(item, int) for item in chosen):
        return None
    return Sizes(tuple(both[0].items[index] for index in chosen), both[1].is_scalar)


@operator("Concat", table=SIZE_RULES)
def _concat(call: Call) -> Sizes | None:
    parts = _all(call)
    if parts is None or any(part.is_scalar for part in parts):
        return None
    return Sizes(tuple(item for part in parts for item in part.items))


@operator("Slice", table=SIZE_RULES)
def _slice(call: Call) -> Sizes | None:
    sizes = call.known(0)
    start, end = call.integers(1, "starts"), call.integers(2, "ends")
    step = call.integers(4) or [1]
    if sizes is None or not start or not end:
        return None
    return Sizes(sizes.items[start[0] : end[0] : step[0]])


@operator("Squeeze", table=SIZE_RULES)
def _squeeze(call: Call) -> Sizes | None:
    sizes = call.known(0)
    return None if sizes is None or len(sizes.items) != 1 else Sizes(sizes.items, is_scalar=True)


@operator("Unsqueeze", table=SIZE_RULES)
def _unsqueeze(call: Call) -> Sizes | None:
    sizes = call.known(0)
    return None if sizes is None or not sizes.is_scalar else Sizes(sizes.items)


@operator("Reshape", table=SIZE_RULES)
def _reshape(call: Call) -> Sizes | None:
    sizes, shape = call.known(0), call.integers(1)
    if sizes is None or shape is None or len(shape) > 1:
        return None
    return Sizes(sizes.items, is_scalar=not shape)


@operator("Identity", table=SIZE_RULES)
def _identity(call: Call) -> Sizes | None:
    return call.known(0)


@operator("Cast", table=SIZE_RULES)
def _cast(call: Call) -> Sizes | None:
    is_integer = call.attribute("to") in (6, 7)  # int32 and int64
    return call.known(0) if is_integer else None


@operator("Where", table=SIZE_RULES)
def _where(call: Call) -> Sizes | None:
    parts = _all(call)
    if parts is None:
        return None
    count = max(len(part.items) for part in parts)
    if any(len(part.items) not in (1, count) for part in parts):
        return None
    chosen = []
    for flag, first, second in zip(*(_repeated(part, count) for part in parts), strict=True):
        if not isinstance(flag.value, int):
            return None
        chosen.append(first if flag.value else second)
    return Sizes(tuple(chosen))
