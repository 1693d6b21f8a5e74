"""The rise of the loss along the actual change of rounding, to second order: g·δ + ½ δᵀHδ."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from torch import Tensor

from ..curvature import Slope, slope
from ..subject import Batch, Key
from .estimator import Estimator, layers_of


class Quadratic(Estimator):
    """Weights and inputs of a layer change together, each to its value in the format."""

    name = "quadratic"
    counts_slope: ClassVar[bool] = True

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        rounded = [key for key in keys if self.subject.input_rounding(key)]
        loss_slope = slope(self.subject, batch, layers_of(keys), with_inputs=layers_of(rounded))
        for key in keys:
            first, second = loss_slope.rise(key.layer, self._direction(loss_slope, key))
            yield key, (first if self.counts_slope else 0.0) + second / 2

    def _direction(self, loss_slope: Slope, key: Key) -> list[Tensor | None]:
        _, *inputs = loss_slope.points[key.layer]
        rounding = self.subject.input_rounding(key)
        return [
            self.subject.weight_change(key),
            *(
                None if rounding is None else rounding(values.detach()) - values.detach()
                for values in inputs
            ),
        ]


class QuadraticCurvature(Quadratic):
    """The curvature alone: ½ δᵀHδ. At convergence, the slope's part differs from batch to batch in
    sign.
    """

    name = "quadratic-curvature"
    counts_slope = False
