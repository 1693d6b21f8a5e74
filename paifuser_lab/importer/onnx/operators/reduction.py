"""Operators that reduce dimensions: sums, means, extremes, the largest values, products by name."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from ...limits import NotConvertibleError
from ...tree import Value
from .registry import OPERATORS, Call, operator


def _l1(x: Tensor, dim: list[int], keepdim: bool) -> Tensor:
    return x.abs().sum(dim=dim, keepdim=keepdim)


def _l2(x: Tensor, dim: list[int], keepdim: bool) -> Tensor:
    return x.square().sum(dim=dim, keepdim=keepdim).sqrt()


def _sum_square(x: Tensor, dim: list[int], keepdim: bool) -> Tensor:
    return x.square().sum(dim=dim, keepdim=keepdim)


def _product(x: Tensor, dim: list[int], keepdim: bool) -> Tensor:
    for axis in sorted((axis % x.ndim for axis in dim), reverse=True):
        x = x.prod(dim=axis, keepdim=keepdim)
    return x


REDUCTIONS: dict[str, Callable[..., Any]] = {
    "ReduceMean": torch.mean, "ReduceSum": torch.sum, "ReduceMax": torch.amax,
    "ReduceMin": torch.amin, "ReduceLogSumExp": torch.logsumexp, "ReduceL1": _l1, "ReduceL2": _l2,
    "ReduceSumSquare": _sum_square, "ReduceProd": _product,
}  # fmt: skip


def _reduced(call: Call) -> Value:
    axes = call.integers(1, "axes")
    if not axes:
        if call.attribute("noop_with_empty_axes", 0):
            return call.value(0)
        axes = list(range(call.rank(0)))
    keeps = bool(call.attribute("keepdims", 1))
    return call.call(REDUCTIONS[call.node.op_type], call.value(0), dim=axes, keepdim=keeps)  # type: ignore[no-any-return]


OPERATORS.update(dict.fromkeys(REDUCTIONS, _reduced))


@operator("ArgMax", "ArgMin")
def arg_max(call: Call) -> Value:
    call.flag("select_last_index", (0,), 0)
    function = torch.argmax if call.node.op_type == "ArgMax" else torch.argmin
    axis, keeps = int(call.attribute("axis", 0)), bool(call.attribute("keepdims", 1))
    return call.call(function, call.value(0), dim=axis, keepdim=keeps)  # type: ignore[no-any-return]


@operator("TopK")
def top_k(call: Call) -> list[Value]:
    count = call.integers(1, "k")
    if not count:
        raise NotConvertibleError("it takes a computed number of values")
    axis, is_largest = int(call.attribute("axis", -1)), bool(call.attribute("largest", 1))
    return call.call(torch.topk, call.value(0), count[0], dim=axis, largest=is_largest)  # type: ignore[no-any-return]


@operator("CumSum")
def cum_sum(call: Call) -> Value:
    call.flag("exclusive", (0,), 0)
    call.flag("reverse", (0,), 0)
    return call.call(torch.cumsum, call.value(0), (call.integers(1) or [0])[0])  # type: ignore[no-any-return]


@operator("Einsum")
def einsum(call: Call) -> Value:
    equation = str(call.attribute("equation"))
    if not set(equation) <= set("abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ,.-> "):
        raise NotConvertibleError("its equation is none")
    values = [call.value(index) for index in range(len(call.inputs))]
    return call.call(torch.einsum, equation, *values)  # type: ignore[no-any-return]
