"""Three ways to probe for the traces of all layers' blocks, and which is cheapest for what it is
worth.

Joint: a vector for all layers in one pass, with what lies between layers as noise. Layer by layer:
a pass each, with less noise. Hutch++: a dozen passes each, for an answer that a hundred plain
probes would give. What a way costs is its seconds times its variance: both are measured, on the
model at hand.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from statistics import fmean, median, variance

import torch

from .curvature import Slope, dot
from .probes import hutch_plus_plus, hutchinson, signs

PILOTS = 3  # probes of each way before one is chosen
RANK = 4
PAYS_FROM = 16  # plain probes that a layer would need, before Hutch++ is tried

Way = Callable[[Slope, list[str], torch.Generator], dict[str, float]]


def joint(slope: Slope, layers: list[str], generator: torch.Generator) -> dict[str, float]:
    """One pass for all layers."""
    vectors = {name: signs(slope.points[name][0], generator) for name in layers}
    return {
        name: dot(vectors[name], product) for name, product in slope.joint_products(vectors).items()
    }


def layer_by_layer(slope: Slope, layers: list[str], generator: torch.Generator) -> dict[str, float]:
    """One pass a layer."""
    return {
        name: hutchinson(partial(slope.product, name), slope.points[name][0], generator)
        for name in layers
    }


def hutch(slope: Slope, layers: list[str], generator: torch.Generator) -> dict[str, float]:
    """Three passes a layer for each of `RANK` directions."""
    return {name: hutch_plus_plus(*flat_block(slope, name), RANK, generator) for name in layers}


def flat_block(
    slope: Slope, name: str
) -> tuple[Callable[[torch.Tensor], torch.Tensor], torch.Tensor]:
    """A layer's block of the Hessian as a product of flat vectors, and a vector of its kind."""
    weight = slope.points[name][0]
    return lambda vector: slope.product(
        name, vector.reshape(weight.shape)
    ).flatten(), weight.detach().flatten()


NAMES: dict[Way, str] = {
    joint: "all layers at once",
    layer_by_layer: "layer by layer",
    hutch: "Hutch++ layer by layer",
}


@dataclass(frozen=True)
class Pilot:
    """A few probes of one way: what they took, and what they said."""

    way: Way
    seconds: float  # a probe
    probes: dict[str, list[float]]  # by layer

    @property
    def means(self) -> dict[str, float]:
        """The traces so far."""
        return {name: fmean(values) for name, values in self.probes.items()}

    def spread(self, traces: dict[str, float]) -> float:
        """The relative variance of a probe, in the middle over layers; a trace of nothing has
        none.
        """
        return median(
            variance(values) / traces[name] ** 2 if traces[name] else 0.0
            for name, values in self.probes.items()
        )

    def cost(self, traces: dict[str, float]) -> float:
        """Seconds to a relative variance of one."""
        return self.seconds * self.spread(traces)


@dataclass(frozen=True)
class Choice:
    """The way that was chosen, why, and the traces that the pilots have already given."""

    way: Way
    why: str
    means: dict[str, float]


def choose(slope: Slope, layers: list[str], error: float, generator: torch.Generator) -> Choice:
    """Try the ways on one batch."""
    by_layer = _pilot(layer_by_layer, slope, layers, generator)
    traces = by_layer.means
    pilots = [_pilot(joint, slope, layers, generator), by_layer]
    if by_layer.spread(traces) / error**2 > PAYS_FROM:
        pilots.append(_pilot(hutch, slope, layers, generator))
    best = min(pilots, key=lambda pilot: pilot.cost(traces))
    facts = "; ".join(
        f"{NAMES[one.way]} {one.seconds:.2g} s a probe, spread {one.spread(traces) ** 0.5:.2f}"
        for one in pilots
    )
    return Choice(best.way, f"trace: probed {NAMES[best.way]} ({facts})", traces)


def _pilot(way: Way, slope: Slope, layers: list[str], generator: torch.Generator) -> Pilot:
    began = time.perf_counter()
    found = [way(slope, layers, generator) for _ in range(PILOTS)]
    seconds = (time.perf_counter() - began) / PILOTS
    return Pilot(way, seconds, {name: [one[name] for one in found] for name in layers})
