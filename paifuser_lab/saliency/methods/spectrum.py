"""The eigenvalues of each layer's block of the Hessian, of one batch: the largest, and their
density.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import ClassVar

import torch

from ...records import Curvature, Estimate, Sensitivity
from ..curvature import slope
from ..lanczos import density, top_eigenvalues
from ..probes import Product
from ..subject import Batch, Key, Subject
from ..trace_estimators import flat_block
from .estimator import Estimator, layers_of

EIGENVALUES = 3
EIGENVALUE_STEPS = 40
DENSITY_PROBES = 3
DENSITY_STEPS = 16


class Eigenvalues(Estimator):
    """The eigenvalues of largest absolute value. A layer's sample is the largest."""

    name = "eigenvalues"
    most_samples = 1
    field: ClassVar[str] = "top_eigenvalues"

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.generator = torch.Generator().manual_seed(subject.seed)
        self.by_layer: dict[str, Curvature] = {}

    @property
    def keys(self) -> list[Key]:
        """The layers themselves: this does not depend on formats."""
        return [Key(layer, "") for layer in self.subject.layers]

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        loss_slope = slope(self.subject, batch, layers_of(keys))
        self.notes.append(f"{self.name}: of a single batch of {batch.examples}")
        for key in keys:
            self.by_layer[key.layer] = self.curvature(*flat_block(loss_slope, key.layer))
            yield key, _largest(self.by_layer[key.layer])

    def curvature(self, block: Product, like: torch.Tensor) -> Curvature:
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

    def curvature(self, block: Product, like: torch.Tensor) -> Curvature:
        nodes = density(
            block, like, probes=DENSITY_PROBES, steps=DENSITY_STEPS, generator=self.generator
        )
        return Curvature(density=nodes)


def _largest(curvature: Curvature) -> float:
    values = curvature.top_eigenvalues or tuple(value for value, _ in curvature.density)
    return max(values, key=abs, default=0.0)
