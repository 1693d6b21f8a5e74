"""FLOPs and bytes of an operator, from its input and output tensors.

Matrix products, convolutions and attention are counted by torch's own formulas
(torch.utils.flop_counter), two operations a multiply-add. The rest is counted here: one operation
an element for pointwise operators, a few for norms and softmax, none for operators that only move
data. Bytes are those that an operator has to read and write once; a view moves none.
"""

from __future__ import annotations

from math import prod
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import _disable_current_modes
from torch.utils.flop_counter import flop_registry

from ..model.flops import MACS_FORMULAS
from ..model.tensors import tensors_in
from ..quantization import Int8Tensor

# pointwise for torch, but without arithmetic
MOVES = (
    "clone",
    "copy_",
    "_to_copy",
    "lift_fresh",
    "fill_",
    "zero_",
    "_pin_memory",
)
# FLOPs of an element
NORM_FLOPS = 7  # mean, deviation, square, sum, scaling, weight, bias
SOFTMAX_FLOPS = 5  # maximum, difference, exponential, sum, quotient
BATCH_NORM_FLOPS = 2  # with known statistics


class Cost(NamedTuple):
    """FLOPs and bytes of one call; `macs` are its multiply-adds, which `flops` counts twice."""

    flops: int = 0
    macs: int = 0
    read_bytes: int = 0
    written_bytes: int = 0


def cost_of(func: Any, args: Any, kwargs: Any, result: Any) -> Cost:
    """The cost of one call of an ATen operator."""
    macs = _macs(func, args, kwargs, result)
    written, read = tensors_in(result), tensors_in((args, kwargs))
    if isinstance(func, HigherOrderOperator):
        return Cost(2 * macs, macs, sum(map(_bytes, read)), sum(map(_bytes, written)))
    if _is_view(func):
        return Cost()
    name = _name(func)
    flops = 2 * macs if macs else _other_flops(func, args, read, written)
    if name in GATHERS:
        read_bytes = _gathered_bytes(name, read, written)
    else:
        reads = {id(tensor): tensor for tensor in read}.values()
        overwrites = name in ("copy_", "fill_", "zero_")
        read_bytes = sum(map(_bytes, list(reads)[overwrites:]))
    is_empty = name.startswith(("empty", "new_empty"))
    return Cost(flops, macs, read_bytes, 0 if is_empty else sum(map(_bytes, written)))


def is_counted_by_torch(name: str) -> bool:
    """Whether torch's FlopCounterMode knows an operator."""
    return any(str(packet) == f"aten.{name}" for packet in flop_registry)


def _macs(func: Any, args: Any, kwargs: Any, result: Any) -> int:
    packet = getattr(func, "_overloadpacket", func)  # a higher-order operator has none
    if packet in flop_registry:
        return int(flop_registry[packet](*args, **kwargs, out_val=result)) // 2
    count = None if packet is func else MACS_FORMULAS.get(_name(func))
    return int(count(args)) if count else 0


def _other_flops(func: Any, args: Any, read: list[Tensor], written: list[Tensor]) -> int:
    name = _name(func)
    if name == "_embedding_bag":
        return int(read[1].numel() * read[0].shape[-1])
    if not written or name.rstrip("_") in MOVES or name in MOVES or name in GATHERS:
        return 0
    for part, flops in PER_ELEMENT.items():
        if part in name:
            return flops * written[0].numel()
    if "pool" in name:
        return _pooling(args, read, written)
    if torch.Tag.reduction in func.tags:
        return read[0].numel() if read else 0
    return written[0].numel() if torch.Tag.pointwise in func.tags else 0


PER_ELEMENT = {
    "batch_norm": BATCH_NORM_FLOPS,
    "layer_norm": NORM_FLOPS,
    "group_norm": NORM_FLOPS,
    "rms_norm": NORM_FLOPS,
    "softmax": SOFTMAX_FLOPS,
}
GATHERS = ("embedding", "index", "index_select", "gather", "take", "_embedding_bag")


def _pooling(args: Any, read: list[Tensor], written: list[Tensor]) -> int:
    """One operation per window element; an adaptive pool counts one per input element."""
    kernel = args[1] if len(args) > 1 else None
    is_window = isinstance(kernel, list | tuple) and len(args) > 2
    return written[0].numel() * prod(kernel) if is_window else read[0].numel()  # type: ignore[arg-type]


def _is_view(func: Any) -> bool:
    returns = func._schema.returns
    if _name(func) == "_unsafe_view":  # its schema does not say so, but it moves nothing
        return True
    return bool(returns) and all(
        value.alias_info is not None and not value.alias_info.is_write for value in returns
    )


def _name(func: Any) -> str:
    return str(func._schema.name).rpartition("::")[2]


def shape_of(tensor: Tensor) -> tuple[int, ...]:
    """The shape of a tensor; for a nested one, the largest size of each dimension."""
    if not tensor.is_nested:
        return tuple(tensor.shape)
    with _disable_current_modes():  # operator counters must not see this one
        parts = [part.shape for part in tensor.unbind()]
    return (len(parts), *(max(sizes) for sizes in zip(*parts, strict=True)))


def _gathered_bytes(name: str, read: list[Tensor], written: list[Tensor]) -> int:
    """The bytes of the indices and of the output; an embedding bag reads all rows that it sums."""
    indices = sum(_bytes(tensor) for tensor in read[1:] if not tensor.is_floating_point())
    if name != "_embedding_bag":
        return indices + sum(map(_bytes, written))
    table, picked = read[:2]
    return indices + picked.numel() * table.shape[-1] * table.element_size()


def _bytes(tensor: Tensor) -> int:
    """The bytes of memory under a tensor; expanded dimensions count once."""
    if isinstance(tensor, Int8Tensor):
        return _bytes(tensor.quantized)
    if tensor.layout is not torch.strided or tensor.is_nested:
        return tensor.numel() * tensor.element_size()
    sizes = (
        size for size, stride in zip(tensor.shape, tensor.stride(), strict=True) if stride != 0
    )
    return prod(sizes) * tensor.element_size() if tensor.numel() else 0
