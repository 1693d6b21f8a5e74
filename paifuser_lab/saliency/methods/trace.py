"""The mean curvature of a layer's weights, times how far rounding moves them: ½ · trace / weights ·
‖δ‖².

What it takes the change to be is a random direction of the same length (Dong et al.: "HAWQ-V2",
2020, without the ½).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from ...records import Curvature, Estimate, Sensitivity
from ..curvature import slope
from ..subject import Batch, Key, Subject
from ..trace_estimators import Choice, choose, joint
from .estimator import Estimator, layers_of

JOINT_PROBES = 4  # on one batch, so that its gradient is worth taking


class Trace(Estimator):
    """Random probes of each layer's block of the Hessian; batches come round again until the mean
    is known.
    """

    name = "trace"
    most_samples = 200

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.generator = torch.Generator().manual_seed(subject.seed)
        self.choice: Choice | None = None

    @property
    def keys(self) -> list[Key]:
        """The layers themselves; formats only scale what is found."""
        return [Key(layer, "") for layer in self.subject.layers]

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        layers = layers_of(keys)
        seen = slope(self.subject, batch, layers)
        if self.choice is None:
            self.choice = choose(seen, layers, self.subject.error, self.generator)
            self.notes.append(self.choice.why)
            yield from ((key, self.choice.means[key.layer]) for key in keys)
            return
        if self.choice.way is joint:
            probes = [joint(seen, layers, self.generator) for _ in range(JOINT_PROBES)]
            yield from ((key, sum(one[key.layer] for one in probes) / JOINT_PROBES) for key in keys)
            return
        for key in keys:
            yield key, self.choice.way(seen, [key.layer], self.generator)[key.layer]

    def scores(self, found: Mapping[Key, Estimate]) -> dict[Key, Estimate]:
        return {
            Key(layer, name): _scaled(trace, self._scale(Key(layer, name)))
            for (layer, _), trace in found.items()
            for name in self.subject.formats
        }

    def curvatures(self, found: Mapping[Key, Estimate]) -> dict[str, Curvature]:
        return {key.layer: Curvature(trace=trace) for key, trace in found.items()}

    def earlier(self, record: Sensitivity) -> dict[Key, Estimate]:
        return {
            Key(row.layer, ""): row.curvature.trace
            for row in record.rows
            if row.curvature and row.curvature.trace
        }

    def _scale(self, key: Key) -> float:
        change = self.subject.weight_change(key)
        return float(change.double().square().mean()) / 2


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    error = None if estimate.error is None else estimate.error * factor
    return estimate.model_copy(update={"value": estimate.value * factor, "error": error})
