"""A matrix product called as a function, the sum and the activation after it, as one call: relu(x @
y.T + 0.5).

On a CPU oneDNN's linear operator does all three; on CUDA cuBLASLt adds and applies relu or GELU (by
tanh) while it multiplies. `addmm` is torch's product with the sum in it, the activation done over
its output. What none of them takes is composed as it was written.
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

Added = Tensor | float | None  # what is added to a product
COMPOSED: dict[str, Callable[..., Tensor]] = {
    "linear": lambda x, matrix, bias: F.linear(x, matrix, bias),
    "matmul": lambda x, matrix, bias: torch.matmul(x, matrix),
    "mm": lambda x, matrix, bias: torch.mm(x, matrix),
    "addmm": lambda x, matrix, bias: torch.addmm(bias, x, matrix),
}
OF_TWO_DIMENSIONS = ("mm", "addmm")
LT = {"relu": False, "gelu by tanh": True}  # what cuBLASLt does after a sum


def composed(
    x: Tensor, matrix: Tensor, bias: Tensor | None, added: Added, *, kind: str, activation: str
) -> Tensor:
    """The same of torch's operators, as the model calls them."""
    made = COMPOSED[kind](x, matrix, bias)
    return ACTIVATIONS[activation].compose(made if added is None else made + added)


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
    """activation(x @ matrix + added) in one call where that can be had for such operands, else
    composed.
    """
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
    """Why operands are not those of a product that can be one with what follows it; '' where they
    are.
    """
    tensors = [one for one in (x, matrix, bias, added) if isinstance(one, Tensor)]
    if not (isinstance(x, Tensor) and isinstance(matrix, Tensor)) or not is_plain(*tensors):
        return "its operands are not plain tensors"
    if matrix.dim() != 2 or x.dim() < 2 or (kind in OF_TWO_DIMENSIONS and x.dim() != 2):
        return "it does not multiply by a single matrix"
    width, depth = matrix.shape if kind == "linear" else (matrix.shape[1], matrix.shape[0])
    if x.shape[-1] != depth or x.numel() == 0 or width == 0:
        return "its operands are empty or do not fit each other"
    if not x.is_floating_point() or any(
        one.dtype != x.dtype or one.device != x.device for one in tensors
    ):
        return "its operands differ in format or device, or are integers"
    if any(one.layout is not torch.strided or one.is_nested for one in tensors):
        return "its operands are not dense"
    if any(isinstance(one, Tensor) and one.shape != (width,) for one in (bias, added)):
        return "what is added to it is not one number for each column"
    return (
        ""
        if product_backends(x, has_bias=True, activation=NONE)
        else f"nothing here does that on {x.device.type}"
    )


def product_backends(
    x: Tensor, *, has_bias: bool, activation: str
) -> dict[str, Callable[..., Tensor]]:
    """What there is for such a product where it is, by name; the likeliest first."""
    found: dict[str, Callable[..., Tensor]] = {}
    if x.device.type == "cpu" and torch._C._has_mkldnn and computes_in(x.dtype):
        found["oneDNN"] = _by_onednn
    if x.device.type == "cuda" and has_bias and activation in LT:
        found["cuBLASLt"] = _by_cublaslt
    if x.device.type in ("cpu", "cuda"):
        found["addmm"] = _by_addmm
    return found


def _by_onednn(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    made: Tensor = torch.ops.mkldnn._linear_pointwise.default(
        x, weight, bias, *ACTIVATIONS[activation].onednn
    )
    return made


def _by_cublaslt(x: Tensor, weight: Tensor, bias: Tensor, activation: str) -> Tensor:
    made = torch._addmm_activation(
        bias, x.reshape(-1, x.shape[-1]), weight.t(), use_gelu=LT[activation]
    )
    return made.reshape(*x.shape[:-1], weight.shape[0])


def _by_addmm(x: Tensor, weight: Tensor, bias: Tensor | None, activation: str) -> Tensor:
    made = F.linear(x, weight, bias)
    return made if activation == NONE else ACTIVATIONS[activation].in_place(made)


@lru_cache(maxsize=32)
def _constant(value: float, width: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """The number that is added, once for each column; made once, so that a call is one operator."""
    with torch.inference_mode(False):
        return torch.full((width,), value, dtype=dtype, device=device)
