"""Probes of the traces of all layers' blocks of the Hessian, by products with random signs, and the
choice of the cheaper method for its variance.

Joint: a vector for all layers in one pass, with the cross terms between layers as noise. Layer by
layer: a pass each, with less noise. The cost of a method is its seconds times its variance: both
are measured, on the model at hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from statistics import fmean, median, variance

import torch
from torch import Tensor

from ..records.text import in_figures
from .curvature import Slope, dot

PILOT_PROBES = 3  # probes of each method before one is chosen

ProbeMethod = Callable[[Slope, list[str], torch.Generator], dict[str, float]]


def signs(like: Tensor, generator: torch.Generator) -> Tensor:
    """A random vector of +1 and -1."""
    drawn = torch.randint(0, 2, like.shape, generator=generator)
    return drawn.to(like.device, like.dtype) * 2 - 1


def joint(slope: Slope, layers: list[str], generator: torch.Generator) -> dict[str, float]:
    """One pass for all layers."""
    vectors = {name: signs(slope.points[name][0], generator) for name in layers}
    return {
        name: dot(vectors[name], product) for name, product in slope.joint_products(vectors).items()
    }


def layer_by_layer(slope: Slope, layers: list[str], generator: torch.Generator) -> dict[str, float]:
    """One pass for each layer: vᵀHv, whose mean over random signs is the trace."""
    vectors = {name: signs(slope.points[name][0], generator) for name in layers}
    return {name: dot(vector, slope.product(name, vector)) for name, vector in vectors.items()}


NAMES: dict[ProbeMethod, str] = {
    joint: "all layers at once",
    layer_by_layer: "layer by layer",
}


@dataclass(frozen=True)
class Pilot:
    """A few probes of one method: their time and their results."""

    method: ProbeMethod
    seconds: float  # for one probe
    probes: dict[str, list[float]]  # by layer

    def spread(self, traces: dict[str, float]) -> float:
        """The relative variance of a probe, the median over layers; 0 for a trace of 0."""
        return median(
            variance(values) / traces[name] ** 2 if traces[name] else 0.0
            for name, values in self.probes.items()
        )


def choose_method(
    slope: Slope, layers: list[str], generator: torch.Generator
) -> tuple[ProbeMethod, str, dict[str, float]]:
    """Try the methods on one batch; the better one, a note on why, and the traces so far."""
    by_layer = _pilot(layer_by_layer, slope, layers, generator)
    traces = {name: fmean(values) for name, values in by_layer.probes.items()}
    pilots = [_pilot(joint, slope, layers, generator), by_layer]
    best = min(pilots, key=lambda pilot: pilot.seconds * pilot.spread(traces))
    facts = "; ".join(
        f"{NAMES[pilot.method]} {in_figures(pilot.seconds, 2)} s a probe, "
        f"spread {pilot.spread(traces) ** 0.5:.2f}"
        for pilot in pilots
    )
    return best.method, f"trace: probed {NAMES[best.method]} ({facts})", traces


def _pilot(
    method: ProbeMethod, slope: Slope, layers: list[str], generator: torch.Generator
) -> Pilot:
    began = time.perf_counter()
    results = [method(slope, layers, generator) for _ in range(PILOT_PROBES)]
    seconds = (time.perf_counter() - began) / PILOT_PROBES
    return Pilot(method, seconds, {name: [result[name] for result in results] for name in layers})
