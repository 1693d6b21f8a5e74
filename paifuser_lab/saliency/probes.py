"""The trace of a matrix that is only known by its products with vectors: Hutchinson's estimate, and
Hutch++.

Hutch++: Meyer, Musco, Musco, Woodruff: "Hutch++: Optimal Stochastic Trace Estimation", 2021.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

Product = Callable[[Tensor], Tensor]  # of the matrix with a flat vector


def signs(like: Tensor, generator: torch.Generator) -> Tensor:
    """A random vector of +1 and -1."""
    drawn = torch.randint(0, 2, like.shape, generator=generator)
    return drawn.to(like.device, like.dtype) * 2 - 1


def hutchinson(product: Product, like: Tensor, generator: torch.Generator) -> float:
    """One probe: vᵀAv, whose mean over random signs is the trace."""
    vector = signs(like, generator)
    return _dot(vector, product(vector))


def hutch_plus_plus(product: Product, like: Tensor, rank: int, generator: torch.Generator) -> float:
    """The exact trace within `rank` dominant directions, plus the mean of `rank` probes of the
    remainder.

    Takes three products for each rank. Where the rank is the size, the trace is exact.
    """
    rank = min(rank, like.numel())
    sketch = torch.stack([product(signs(like, generator)) for _ in range(rank)], dim=1)
    basis = torch.linalg.qr(sketch)[0]
    exact = sum(_dot(column, product(column)) for column in basis.T)
    if rank == like.numel():
        return exact
    rest = 0.0
    for _ in range(rank):
        vector = signs(like, generator)
        vector = vector - basis @ (basis.T @ vector)
        rest += _dot(vector, product(vector))
    return exact + rest / rank


def _dot(left: Tensor, right: Tensor) -> float:
    return float((left.double() * right.double()).sum())
