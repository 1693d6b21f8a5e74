"""A matrix product called as a function, with the sum and the activation after it, as one call:
relu(x @ y.T + 0.5).

On a CPU oneDNN's linear operator does all three; on CUDA cuBLASLt adds and applies relu or GELU (by
tanh) in the same kernel. `addmm` is torch's product with the sum in it; the activation is done in
place on its output. What no backend supports runs unfused, as the model calls it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional as F

from .activation import ACTIVATIONS, NONE
from .fallback import is_plain
from .onednn import computes_in

Added = Tensor | float | None  # the other operand of the sum after a product
COMPOSED: dict[str, Callable[..., Tensor]] = {
    "linear": lambda x, matrix, bias: F.linear(x, matrix, bias),
    "matmul": lambda x, matrix, bias: torch.matmul(x, matrix),
    "mm": lambda x, matrix, bias: torch.mm(x, matrix),
    "addmm": lambda x, matrix, bias: torch.addmm(bias, x, matrix),
}
OF_TWO_DIMENSIONS = ("mm", "addmm")
LT = {"relu": False, "gelu by tanh": True}  # cuBLASLt's activations after a sum: its use_gelu


def composed(
    x: Tensor, matrix: Tensor, bias: Tensor | None, added: Added, *, kind: str, activation: str
) -> Tensor:
    """The unfused computation with torch's operators, as the model calls them."""
    output = COMPOSED[kind](x, matrix, bias)
    return ACTIVATIONS[activation].compose(output if added is None else output + added)


def run_product(
    x: Tensor,
    matrix: Tensor,
    bias: Tensor | None,
    added: Added,
    *,
    kind: str,
    activation: str,
    backend: str,
) -> Tensor:
    """activation(x @ matrix + added) in one call where a backend can, else unfused."""
    if misfit(x, matrix, bias, added, kind=kind):
        return composed(x, matrix, bias, added, kind=kind, activation=activation)
    weight = matrix if kind == "linear" else matrix.t()
    known = product_backends(
        x, has_bias=bias is not None or added is not None, activation=activation
    )
    if isinstance(added, Tensor):
        bias = added
    elif added is not None:
        bias = _constant(float(added), weight.shape[0], x.dtype, x.device)
    run = known.get(backend) or next(iter(known.values()))
    return run(x, weight, bias, activation)


def misfit(x: Any, matrix: Any, bias: Any, added: Any, *, kind: str) -> str:
    """Why operands do not suit a product that can be fused with what follows it; '' if they do."""
    tensors = [tensor for tensor in (x, matrix, bias, added) if isinstance(tensor, Tensor)]
    if not (isinstance(x, Tensor) and isinstance(matrix, Tensor)) or not is_plain(*tensors):
        return "its operands are not plain tensors"
    if matrix.dim() != 2 or x.dim() < 2 or (kind in OF_TWO_DIMENSIONS and x.dim() != 2):
        return "it does not multiply by a single matrix"
    width, depth = matrix.shape if kind == "linear" else (matrix.shape[1], matrix.shape[0])
    if x.shape[-1] != depth or x.numel() == 0 or width == 0:
        return "its operands are empty or do not fit each other"
    if not x.is_floating_point() or any(
        tensor.dtype != x.dtype or tensor.device != x.device for tensor in tensors
    ):
        return "its operands differ in format or device, or are integers"
    if any(tensor.layout is not torch.strided or tensor.is_nested for tensor in tensors):
        return "its operands are not dense"
    if any(isinstance(tensor, Tensor) and tensor.shape != (width,) for tensor in (bias, added)):
        return "what is added to it is not one number for each column"
    return (
        ""
        if product_backends(x, has_bias=True, activation=NONE)
        else f"nothing here does that on {x.device.type}"
    )


def product_backends(
    x: Tensor, *, has_bias: bool, activation: str
) -> dict[str, Callable[..., Tensor]]:
    """The backends for such a product on its device, by name; the one likely fastest first."""
    backends: dict[str, Callable[..., Tensor]] = {}
    if x.device.type == "cpu" and torch._C._has_mkldnn and computes_in(x.dtype):
        backends["oneDNN"] = _by_onednn
    if x.device.type == "cuda" and has_bias and activation in LT:
        backends["cuBLASLt"] = _by_cublaslt
    if x.device.type in ("cpu", "cuda"):
        backends["addmm"] = _by_addmm
    return backends


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    output: Tensor = torch.ops.mkldnn._linear_pointwise.default(
        x, weight, bias, *ACTIVATIONS[activation].onednn
    )
    return output


def _by_cublaslt(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    output = torch._addmm_activation(
        bias, x.reshape(-1, x.shape[-1]), weight.t(), use_gelu=LT[activation]
    )
    return output.reshape(*x.shape[:-1], weight.shape[0])


def _by_addmm(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    output = F.linear(x, weight, bias)
    return output if activation == NONE else ACTIVATIONS[activation].in_place(output)


@lru_cache(maxsize=32)
def _constant(value: float, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The number that is added, as a cached vector, so that a call is one operator."""
    with torch.inference_mode(False):
        return torch.full((width,), value, dtype=dtype, device=device)
