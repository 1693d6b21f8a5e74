"""The spectrum of a symmetric matrix that is only known by its products: Lanczos, every vector
orthogonalised against all before it.

The density is stochastic Lanczos quadrature: Ghorbani, Krishnan, Xiao: "An Investigation into
Neural Net Optimization via Hessian Eigenvalue Density", 2019.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy
import torch
from torch import Tensor

from .probes import Product, signs

TINY = 1e-6  # of the largest entry so far: nothing is left to look into


def ritz(product: Product, start: Tensor, steps: int) -> Iterator[tuple[Any, Any, Any]]:
    """After each step: approximate eigenvalues, the weight that each has in the start, and how far
    each is off at most.
    """
    basis = [start / start.norm()]
    diagonal: list[float] = []
    beside: list[float] = []
    for _ in range(min(steps, start.numel())):
        vector = product(basis[-1])
        diagonal.append(float(vector @ basis[-1]))
        for _ in range(2):  # once loses what rounding puts back
            known = torch.stack(basis)
            vector = vector - known.T @ (known @ vector)
        length = float(vector.norm())
        values, vectors = numpy.linalg.eigh(_tridiagonal(diagonal, beside))
        is_whole = (
            length <= TINY * max(map(abs, diagonal + beside), default=0.0)
            or len(basis) == start.numel()
        )
        yield values, vectors[0] ** 2, abs(vectors[-1]) * (0.0 if is_whole else length)
        if is_whole:
            return
        beside.append(length)
        basis.append(vector / length)


def top_eigenvalues(
    product: Product,
    like: Tensor,
    count: int,
    *,
    error: float,
    steps: int,
    generator: torch.Generator,
) -> tuple[float, ...]:
    """The eigenvalues of largest size, until each is known to a relative error or the steps are
    over.
    """
    top: list[float] = []
    for values, _, off in ritz(product, signs(like, generator), steps):
        chosen = numpy.argsort(-abs(values))[:count]
        top = [float(values[index]) for index in chosen]
        if len(values) > 2 * count and all(
            off[index] <= error * abs(values[index]) for index in chosen
        ):
            break
    return tuple(top)


def density(
    product: Product, like: Tensor, *, probes: int, steps: int, generator: torch.Generator
) -> tuple[tuple[float, float], ...]:
    """Eigenvalues and the share of all that each stands for; the shares add up to one."""
    found: list[tuple[float, float]] = []
    for _ in range(probes):
        *_, (values, weights, _) = ritz(product, signs(like, generator), steps)
        found += [
            (float(value), float(weight) / probes)
            for value, weight in zip(values, weights, strict=True)
        ]
    return tuple(sorted(found))


def _tridiagonal(diagonal: list[float], beside: list[float]) -> Any:
    return numpy.diag(diagonal) + numpy.diag(beside, 1) + numpy.diag(beside, -1)
