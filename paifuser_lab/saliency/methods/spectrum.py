"""The eigenvalues of each layer's block of the Hessian, of one batch: the largest, and their
density, by Lanczos with full reorthogonalisation.

The density is stochastic Lanczos quadrature: Ghorbani, Krishnan, Xiao: "An Investigation into
Neural Net Optimization via Hessian Eigenvalue Density", 2019.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, ClassVar

import numpy
import torch
from torch import Tensor

from ...records import Curvature, Estimate, Sensitivity
from ..curvature import Product, slope
from ..probes import signs
from ..subject import Batch, Key, Subject
from .estimator import Estimator, layers_of

EIGENVALUES = 3
EIGENVALUE_STEPS = 40
DENSITY_PROBES = 3
DENSITY_STEPS = 16
TINY = 1e-6  # of the largest entry so far: below it the Krylov space is exhausted


class Eigenvalues(Estimator):
    """The eigenvalues of largest absolute value. A layer's sample is the largest."""

    name = "eigenvalues"
    most_samples = 1
    is_by_format = False
    field: ClassVar[str] = "top_eigenvalues"

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.generator = torch.Generator().manual_seed(subject.seed)
        self.by_layer: dict[str, Curvature] = {}

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        loss_slope = slope(self.subject, batch, layers_of(keys))
        self.notes.append(f"{self.name}: of a single batch of {batch.examples}")
        for key in keys:
            self.by_layer[key.layer] = self.curvature(*loss_slope.flat_block(key.layer))
            yield key, _largest(self.by_layer[key.layer])

    def curvature(self, block: Product, like: Tensor) -> Curvature:
        """The spectrum of one layer's block."""
        return Curvature(
            top_eigenvalues=top_eigenvalues(
                block,
                like,
                EIGENVALUES,
                error=self.subject.error / 10,
                steps=EIGENVALUE_STEPS,
                generator=self.generator,
            )
        )

    def scores(self, means: Mapping[Key, Estimate]) -> dict[Key, Estimate]:
        return {}

    def curvatures(self, means: Mapping[Key, Estimate]) -> dict[str, Curvature]:
        return self.by_layer

    def earlier(self, record: Sensitivity) -> dict[Key, Estimate]:
        return {
            Key(row.layer, ""): Estimate(value=_largest(row.curvature), samples=1)
            for row in record.rows
            if row.curvature and getattr(row.curvature, self.field)
        }


class Density(Eigenvalues):
    """The density of the eigenvalues: nodes, and the share of the spectrum that each represents."""

    name = "density"
    field = "density"

    def curvature(self, block: Product, like: Tensor) -> Curvature:
        nodes = density(
            block, like, probes=DENSITY_PROBES, steps=DENSITY_STEPS, generator=self.generator
        )
        return Curvature(density=nodes)


def _largest(curvature: Curvature) -> float:
    values = curvature.top_eigenvalues or tuple(value for value, _ in curvature.density)
    return max(values, key=abs, default=0.0)


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
        beside = numpy.diag(off_diagonal, 1)
        values, vectors = numpy.linalg.eigh(numpy.diag(diagonal) + beside + beside.T)
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
