"""The spectrum of a symmetric matrix that is only known by its products with vectors: Lanczos with
full reorthogonalisation.

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

TINY = 1e-6  # of the largest entry so far: below it the Krylov space is exhausted


def ritz(product: Product, start: Tensor, steps: int) -> Iterator[tuple[Any, Any, Any]]:
    """After each step: approximate eigenvalues, the weight of each in the start vector, and a bound
    on the error of each.
    """
    basis = [start / start.norm()]
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    for _ in range(min(steps, start.numel())):
        vector = product(basis[-1])
        diagonal.append(float(vector @ basis[-1]))
        for _ in range(2):  # once is not enough: rounding errors bring components back
            vectors_so_far = torch.stack(basis)
            vector = vector - vectors_so_far.T @ (vectors_so_far @ vector)
        length = float(vector.norm())
        values, vectors = numpy.linalg.eigh(_tridiagonal(diagonal, off_diagonal))
        is_exhausted = (
            length <= TINY * max(map(abs, diagonal + off_diagonal), default=0.0)
            or len(basis) == start.numel()
        )
        yield values, vectors[0] ** 2, abs(vectors[-1]) * (0.0 if is_exhausted else length)
        if is_exhausted:
            return
        off_diagonal.append(length)
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
    """The eigenvalues of largest absolute value, until each has the requested relative error or the
    steps are used up.
    """
    top: list[float] = []
    for values, _, errors in ritz(product, signs(like, generator), steps):
        chosen = numpy.argsort(-abs(values))[:count]
        top = [float(values[index]) for index in chosen]
        if len(values) > 2 * count and all(
            errors[index] <= error * abs(values[index]) for index in chosen
        ):
            break
    return tuple(top)


def density(
    product: Product, like: Tensor, *, probes: int, steps: int, generator: torch.Generator
) -> tuple[tuple[float, float], ...]:
    """Eigenvalues and the share of the spectrum that each represents; the shares add up to one."""
    nodes: list[tuple[float, float]] = []
    for _ in range(probes):
        *_, (values, weights, _) = ritz(product, signs(like, generator), steps)
        nodes += [
            (float(value), float(weight) / probes)
            for value, weight in zip(values, weights, strict=True)
        ]
    return tuple(sorted(nodes))


def _tridiagonal(diagonal: list[float], off_diagonal: list[float]) -> Any:
    return numpy.diag(diagonal) + numpy.diag(off_diagonal, 1) + numpy.diag(off_diagonal, -1)
