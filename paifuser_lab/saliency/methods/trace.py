"""The mean curvature of a layer's weights, times the squared norm of the rounding: ½ · trace /
weights · ‖δ‖².

It treats the change as a random direction of the same norm (Dong et al.: "HAWQ-V2", 2020, without
the ½).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import torch

from ...records import Curvature, Estimate, Sensitivity
from ...workload.seeding import seed_of
from ..curvature import slope
from ..probes import ProbeMethod, choose_method, joint
from ..subject import Batch, Key, Subject
from .estimator import Estimator, layers_of

JOINT_PROBES = 4  # of one batch, to share the cost of its gradient


class Trace(Estimator):
    """Random probes of each layer's block of the Hessian; batches are reused until the mean is
    precise enough.
    """

    name = "trace"
    most_samples = 200
    is_by_format = False  # formats only scale the trace

    def __init__(self, subject: Subject) -> None:
        super().__init__(subject)
        self.generator = torch.Generator().manual_seed(subject.seed)
        self.method: ProbeMethod | None = None

    def samples(self, batch: Batch, keys: list[Key]) -> Iterator[tuple[Key, float]]:
        layers = layers_of(keys)
        loss_slope = slope(self.subject, batch, layers)
        if self.method is None:
            self.method, note, traces = choose_method(loss_slope, layers, self.generator)
            self.notes.append(note)
            yield from ((key, traces[key.layer]) for key in keys)
            return
        if self.method is joint:
            probes = [joint(loss_slope, layers, self.generator) for _ in range(JOINT_PROBES)]
            yield from (
                (key, sum(probe[key.layer] for probe in probes) / JOINT_PROBES) for key in keys
            )
            return
        for key in keys:
            yield key, self.method(loss_slope, [key.layer], self.generator)[key.layer]

    def scores(self, means: Mapping[Key, Estimate]) -> dict[Key, Estimate]:
        return {
            Key(layer, name): _scaled(trace, self._scale(Key(layer, name)))
            for (layer, _), trace in means.items()
            for name in self.subject.formats
        }

    def curvatures(self, means: Mapping[Key, Estimate]) -> dict[str, Curvature]:
        return {key.layer: Curvature(trace=trace) for key, trace in means.items()}

    def earlier(self, record: Sensitivity) -> dict[Key, Estimate]:
        known = {
            Key(row.layer, ""): row.curvature.trace
            for row in record.rows
            if row.curvature and row.curvature.trace
        }
        if known:  # repeated probes would make the mean seem more precise than it is
            done = sum(estimate.samples or 1 for estimate in known.values())
            self.generator.manual_seed(seed_of(self.subject.seed, done))
        return known

    def _scale(self, key: Key) -> float:
        change = self.subject.weight_change(key)
        return float(change.double().square().mean()) / 2


def _scaled(estimate: Estimate, factor: float) -> Estimate:
    error = None if estimate.error is None else estimate.error * factor
    return estimate.model_copy(update={"value": estimate.value * factor, "error": error})
