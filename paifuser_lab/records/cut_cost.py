"""Predicted cost of a model with fewer channels, before pruning: exact for parameters and FLOPs,
proportional for time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import floor, inf, prod
from typing import NamedTuple

from .coupling import ChannelGroup
from .record import Record
from .text import readable_count
from .workload_name import AboutWorkload

Widths = Sequence[int]  # the number of units kept in each group


class Length(Record):
    """The length of a dimension: a fixed part, and for some groups a number of elements per kept
    unit.
    """

    fixed: int
    terms: tuple[tuple[int, int], ...]  # group, elements per unit

    def at(self, widths: Widths) -> int:
        """The length with these numbers of kept units."""
        return self.fixed + sum(elements * widths[group] for group, elements in self.terms)


class CutWeights(Record):
    """Weights of the same shape: `times` the product of some lengths."""

    times: int
    lengths: tuple[int, ...]


class CutLayer(Record):
    """A layer whose work is proportional to the product of some lengths.

    `stairs` are measured latencies, if there are any: (the first length, ms), the shortest first,
    interpolated linearly.
    """

    layer: str
    flops: int
    ms: float
    lengths: tuple[int, ...]
    stairs: tuple[tuple[float, float], ...] = ()


class Foretold(NamedTuple):
    """The predicted parameters, FLOPs and latency of a model."""

    parameters: int
    flops: float
    latency_ms: float


class CutCost(Record):
    """A cost model by the number of units kept of each group of channels.

    Parameters and the FLOPs of layers with weights are exact. A layer's `ms` follow its measured
    stairs if there are any, else its FLOPs; the rest of `latency_ms`, such as the overhead of
    calling layers, stays constant.
    """

    workload: AboutWorkload
    groups: tuple[ChannelGroup, ...]
    lengths: tuple[Length, ...]
    weights: tuple[CutWeights, ...]
    layers: tuple[CutLayer, ...]
    other_parameters: int
    other_flops: int
    latency_ms: float

    @property
    def full(self) -> tuple[int, ...]:
        """The widths with every unit kept."""
        return tuple(group.width for group in self.groups)

    def widths(self, removed: Mapping[str, float]) -> tuple[int, ...]:
        """The widths that the step `prune` keeps for these ratios per layer; of two layers of one
        group the later counts.
        """
        kept = list(self.full)
        for layer, ratio in removed.items():
            for index, group in enumerate(self.groups):
                if group.pinned is None and layer in group.layers:
                    kept[index] = min(group.width, max(1, floor(group.width * (1 - ratio) + 0.5)))
        return tuple(kept)

    def predict(self, widths: Widths) -> Foretold:
        """Parameters, FLOPs and latency with these numbers of kept units."""
        now, full = self._lengths(widths), self._lengths(self.full)
        parameters = self.other_parameters + sum(
            weight.times * prod(now[length] for length in weight.lengths) for weight in self.weights
        )
        flops = self.other_flops + sum(
            layer.flops * _share(layer.lengths, now, full) for layer in self.layers
        )
        saved = sum(layer.ms - _ms(layer, now, full) for layer in self.layers)
        return Foretold(parameters, flops, max(0.0, self.latency_ms - saved))

    def with_stairs(self, stairs: Mapping[str, Sequence[tuple[float, float]]]) -> CutCost:
        """A copy with measured latencies for some layers: (output length, ms) each."""
        layers = (
            row.model_copy(update={"stairs": tuple(sorted(stairs.get(row.layer, row.stairs)))})
            for row in self.layers
        )
        return self.model_copy(update={"layers": tuple(layers)})

    @property
    def title(self) -> str:
        """The unpruned model's cost and number of groups, in a line."""
        whole = self.predict(self.full)
        return (
            f"{self.workload}: {readable_count(whole.parameters)} parameters, "
            f"{readable_count(round(whole.flops))} FLOPs, "
            f"{whole.latency_ms:.3g} ms by the width of {len(self.groups)} groups of channels"
        )

    def __repr__(self) -> str:
        return f"CutCost({self.title})"

    def _lengths(self, widths: Widths) -> tuple[int, ...]:
        return tuple(length.at(widths) for length in self.lengths)


def _share(lengths: Iterable[int], now: Sequence[int], full: Sequence[int]) -> float:
    return prod(now[length] / full[length] for length in lengths)


def _ms(layer: CutLayer, now: Sequence[int], full: Sequence[int]) -> float:
    """A layer's latency: by its stairs for the first length, proportional for the others."""
    if not layer.stairs or not layer.lengths:
        return layer.ms * _share(layer.lengths, now, full)
    first, *others = layer.lengths
    whole = _interpolated(layer.stairs, full[first])
    step = _interpolated(layer.stairs, now[first]) / whole if whole > 0 else 1.0
    return layer.ms * step * _share(others, now, full)


def _interpolated(stairs: Sequence[tuple[float, float]], length: float) -> float:
    """The latency at a length, interpolated linearly; constant beyond the ends."""
    below_at, below_ms = -inf, stairs[0][1]
    for above, ms in stairs:
        if length <= above:
            return (
                ms
                if below_at == -inf
                else below_ms + (ms - below_ms) * (length - below_at) / (above - below_at)
            )
        below_at, below_ms = above, ms
    return below_ms
