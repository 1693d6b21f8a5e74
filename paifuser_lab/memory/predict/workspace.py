"""The memory that an operator on a CPU allocates through torch and frees before it ends.

Most allocate nothing but their outputs. Convolutions do: oneDNN computes in layouts of its own, so
images, weights and results in torch's layout are converted inside the operator (`convolutions`).
Others copy an argument that is not contiguous, or compute an intermediate result. What oneDNN and
MKL take from the system itself is not known here.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from .convolutions import backward_bytes, forward_bytes

aten = torch.ops.aten
Formula = Callable[[tuple[Any, ...], Any], int]


def workspace_of(func: Any, args: tuple[Any, ...], kwargs: dict[str, Any], output: Any) -> int:
    """The bytes that a call holds inside beyond its outputs, at the most."""
    formula = FORMULAS.get(func)
    return 0 if formula is None or not _is_on_cpu(args) else max(0, formula(args, output))


def _convolution(args: tuple[Any, ...], output: Any) -> int:
    return forward_bytes(args, output) - _bytes_of(output)


def _convolution_backward(args: tuple[Any, ...], output: Any) -> int:
    outputs = _bytes_of(output)
    return backward_bytes(args, outputs) - outputs


def _batch_norm_backward(args: tuple[Any, ...], output: Any) -> int:
    """The terms of the gradient, where both arguments are contiguous."""
    gradient, image = args[:2]
    is_plain = gradient.is_contiguous() and image.is_contiguous()
    return int(image.nbytes) if is_plain else 0


def _copies(*positions: int) -> Formula:
    """Contiguous copies of these arguments, where they are not contiguous."""

    def formula(args: tuple[Any, ...], output: Any) -> int:
        tensors = [args[position] for position in positions]
        return sum(tensor.nbytes for tensor in tensors if not tensor.is_contiguous())

    return formula


def _roll(args: tuple[Any, ...], output: Any) -> int:
    """Several dimensions are rolled one after the other."""
    return _bytes_of(output) if len(args[1]) > 1 else 0


def _safe_softmax(args: tuple[Any, ...], output: Any) -> int:
    """Which scores are minus infinity."""
    return int(args[0].numel())


def _bytes_of(output: Any) -> int:
    return sum(leaf.nbytes for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor))


def _is_on_cpu(args: tuple[Any, ...]) -> bool:
    return next((leaf.device.type == "cpu" for leaf in args if isinstance(leaf, Tensor)), False)


FORMULAS: dict[Any, Formula] = {
    aten.convolution.default: _convolution,
    aten.convolution_backward.default: _convolution_backward,
    aten.native_batch_norm_backward.default: _batch_norm_backward,
    aten.native_layer_norm.default: _copies(0),
    aten.native_layer_norm_backward.default: _copies(0, 1),
    aten.roll.default: _roll,
    aten._safe_softmax.default: _safe_softmax,
}
