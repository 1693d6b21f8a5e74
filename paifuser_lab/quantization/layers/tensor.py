"""A tensor that stays in int8 between layers. To a model it looks like any float tensor.

Operators that only move or order values run on the quantized values; for any other operator it is
dequantized first. So a model with unforeseen operators is slower, never wrong.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from ...errors import StepError
from ...model.formats import Range
from ..conversion import dequantize_values

aten = torch.ops.aten


class Int8Tensor(Tensor):
    """Quantized values in uint8 and the range that they span."""

    quantized: Tensor
    span: Range
    __torch_function__ = torch._C._disabled_torch_function_impl  # type: ignore[assignment]

    @staticmethod
    def __new__(
        cls: type[Int8Tensor], quantized: Tensor, span: Range, dtype: torch.dtype = torch.float32
    ) -> Int8Tensor:
        output: Int8Tensor = torch.Tensor._make_wrapper_subclass(
            cls, quantized.shape, strides=quantized.stride(), dtype=dtype, device=quantized.device
        )
        return output

    def __init__(self, quantized: Tensor, span: Range, dtype: torch.dtype = torch.float32) -> None:
        self.quantized, self.span = quantized, span
        # floats written in place over the quantized values, which could not hold them
        self.written: Tensor | None = None
        self.has_views = False

    def dequantized(self) -> Tensor:
        """The float tensor that it represents, which a model may view."""
        if self.written is not None:
            return self.written
        return dequantize_values(self.quantized.contiguous(), self.span, self.dtype)

    def __repr__(self, *, tensor_contents: Any = None) -> str:  # type: ignore[override]
        return (
            f"Int8Tensor({'×'.join(map(str, self.shape))}, {self.span.low:.3g} to "
            f"{self.span.high:.3g})"
        )

    @classmethod
    def __torch_dispatch__(cls, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:  # type: ignore[override]
        kwargs = kwargs or {}
        if func in ON_QUANTIZED and isinstance(args[0], Int8Tensor) and args[0].written is None:
            output = ON_QUANTIZED[func](args[0], func, args[1:], kwargs)
            if output is not None:
                return output
        plain_args, plain_kwargs = pytree.tree_map_only(
            Int8Tensor, lambda tensor: tensor.dequantized(), (args, kwargs)
        )
        output = func(*plain_args, **plain_kwargs)
        if func._schema.is_mutable and isinstance(args[0], Int8Tensor):
            return _written(args[0], plain_args[0])
        return output


def _written(tensor: Int8Tensor, values: Tensor) -> Int8Tensor:
    """Replace the quantized values by those written; other views would not see the change."""
    if tensor.has_views:
        raise StepError(
            "a model writes in place into a part of a layer's int8 output; leave that layer "
            "in a float format."
        )
    tensor.written = values
    return tensor


OnQuantized = Callable[[Int8Tensor, Any, Any, Any], Any]
ON_QUANTIZED: dict[Any, OnQuantized] = {}


def on_quantized(*operators: Any) -> Callable[[OnQuantized], OnQuantized]:
    """Register a function on quantized values; it returns None where it does not apply."""

    def register(function: OnQuantized) -> OnQuantized:
        ON_QUANTIZED.update(dict.fromkeys(operators, function))
        return function

    return register


@on_quantized(
    aten.view.default,
    aten._unsafe_view.default,
    aten.reshape.default,
    aten.permute.default,
    aten.transpose.int,
    aten.t.default,
    aten.unsqueeze.default,
    aten.squeeze.dim,
    aten.slice.Tensor,
    aten.select.int,
    aten.expand.default,
    aten.detach.default,
    aten.alias.default,
)
def _moved(tensor: Int8Tensor, func: Any, args: Any, kwargs: Any) -> Any:
    if func is aten.view.default:
        func = aten.reshape.default  # a convolution's output is channels-last
    view = Int8Tensor(func(tensor.quantized, *args, **kwargs), tensor.span, tensor.dtype)
    tensor.has_views = view.has_views = True
    return view


@on_quantized(aten.clone.default)
def _copied(tensor: Int8Tensor, func: Any, args: Any, kwargs: Any) -> Any:
    return Int8Tensor(func(tensor.quantized, *args, **kwargs), tensor.span, tensor.dtype)


@on_quantized(aten.relu.default)
def _relu(tensor: Int8Tensor, func: Any, args: Any, kwargs: Any) -> Any:
    if tensor.span.zero == 0:
        return _moved(tensor, aten.alias.default, (), {})
    return Int8Tensor(tensor.quantized.clamp(min=tensor.span.zero), tensor.span, tensor.dtype)


@on_quantized(aten.relu_.default)
def _relu_in_place(tensor: Int8Tensor, func: Any, args: Any, kwargs: Any) -> Any:
    if tensor.span.zero:
        tensor.quantized.clamp_(min=tensor.span.zero)
    return tensor


@on_quantized(aten.hardtanh.default, aten.hardtanh_.default)
def _clamped(tensor: Int8Tensor, func: Any, args: Any, kwargs: Any) -> Any:
    low, high = (list(args) + [-1, 1][len(args) :])[:2]
    if kwargs or not low <= 0 <= high:
        return None
    least, most = (tensor.span.step(edge) for edge in (low, high))
    if func is aten.hardtanh_.default:
        tensor.quantized.clamp_(least, most)
        return tensor
    return Int8Tensor(tensor.quantized.clamp(least, most), tensor.span, tensor.dtype)


@on_quantized(aten.max_pool2d_with_indices.default)
def _max_pooled(tensor: Int8Tensor, func: Any, args: Any, kwargs: Any) -> Any:
    if kwargs or tensor.quantized.device.type != "cpu":
        return None
    wrapped = torch._make_per_tensor_quantized_tensor(tensor.quantized, 1.0, 0)
    pooled = torch.quantized_max_pool2d(wrapped, *args).int_repr()
    # the indices are on the meta device: no operator may read them
    return Int8Tensor(pooled, tensor.span, tensor.dtype), torch.empty_like(
        pooled, dtype=torch.long, device="meta"
    )
