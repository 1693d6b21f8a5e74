"""The loss's rise along what rounding really changes, to second order: g·δ + ½ δᵀHδ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from torch import Tensor

from ..curvature import Slope, slope
from ..subject import Batch, Key
from .estimator import Estimator, layers_of


class Quadratic(Estimator):
    """Weights and inputs of a layer move together, each to where the format puts it."""

    name = "quadratic"
    moves_weights: ClassVar[bool] = True
    moves_inputs: ClassVar[bool] = True
    counts_slope: ClassVar[bool] = True

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        rounded = [key for key in keys if self.moves_inputs and self.subject.input_rounding(key)]
        seen = slope(self.subject, batch, layers_of(keys), with_inputs=layers_of(rounded))
        for key in keys:
            first, second = seen.rise(key.layer, self._direction(seen, key))
            yield key, (first if self.counts_slope else 0.0) + second / 2

    def _direction(self, seen: Slope, key: Key) -> list[Tensor | None]:
        _, *inputs = seen.points[key.layer]
        rounding = self.subject.input_rounding(key) if self.moves_inputs else None
        return [
            self.subject.weight_change(key) if self.moves_weights else None,
            *(
                None if rounding is None else rounding(values.detach()) - values.detach()
                for values in inputs
            ),
        ]


class QuadraticWeights(Quadratic):
    """The part of a layer's weights alone."""

    name = "quadratic-weights"
    moves_inputs = False


class QuadraticInputs(Quadratic):
    """The part of what a layer is given alone; zero for formats that leave it."""

    name = "quadratic-inputs"
    moves_weights = False


class QuadraticCurvature(Quadratic):
    """The bend alone: ½ δᵀHδ. What the slope adds differs from batch to batch in sign, where
    training has come to rest.
    """

    name = "quadratic-curvature"
    counts_slope = False
