"""What a model would cost with fewer channels, before anything is cut: exact for weights and
products, in proportion for time.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from math import floor, inf, prod
from typing import NamedTuple

from .coupling import ChannelGroup
from .record import Record
from .text import readable_count
from .workload_name import AboutWorkload

Widths = Sequence[int]  # how many units of each group are kept


class Length(Record):
    """How long dimensions are: what stays in any case, and for each unit that is kept of some
    groups so many places.
    """

    fixed: int
    terms: tuple[tuple[int, int], ...]  # group, places a unit

    def at(self, widths: Widths) -> int:
        """The length when so many units are kept."""
        return self.fixed + sum(places * widths[group] for group, places in self.terms)


class CutWeights(Record):
    """Weights that shrink alike: `times` the product of some lengths."""

    times: int
    lengths: tuple[int, ...]


class CutLayer(Record):
    """A layer whose work goes with the product of some lengths.

    `stairs` are measured times, if there are any: (the first length, ms), the shortest first,
    straight lines between them.
    """

    layer: str
    flops: int
    ms: float
    lengths: tuple[int, ...]
    stairs: tuple[tuple[float, float], ...] = ()


class Foretold(NamedTuple):
    """What a model is predicted to have and to take."""

    parameters: int
    flops: float
    latency_ms: float


class CutCost(Record):
    """A small model of what a model costs, by how many units are kept of each group of channels.

    Parameters and the arithmetic of layers with weights are exact. A layer's `ms` go with its
    stairs where those were measured, else in proportion to its arithmetic; whatever else
    `latency_ms` holds, such as the cost of calling layers, stays.
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
        """Every unit of every group."""
        return tuple(group.width for group in self.groups)

    def widths(self, removed: Mapping[str, float]) -> tuple[int, ...]:
        """What the step `prune` keeps when it is given a share to remove for each of some layers;
        of two of a group the later counts.
        """
        kept = list(self.full)
        for layer, ratio in removed.items():
            for place, group in enumerate(self.groups):
                if group.pinned is None and layer in group.layers:
                    kept[place] = min(group.width, max(1, floor(group.width * (1 - ratio) + 0.5)))
        return tuple(kept)

    def predict(self, widths: Widths) -> Foretold:
        """Parameters, operations and time when so many units of each group are kept."""
        now, full = self._lengths(widths), self._lengths(self.full)
        parameters = self.other_parameters + sum(
            one.times * prod(now[place] for place in one.lengths) for one in self.weights
        )
        flops = self.other_flops + sum(
            one.flops * _share(one.lengths, now, full) for one in self.layers
        )
        saved = sum(one.ms - _ms(one, now, full) for one in self.layers)
        return Foretold(parameters, flops, max(0.0, self.latency_ms - saved))

    def with_stairs(self, stairs: Mapping[str, Sequence[tuple[float, float]]]) -> CutCost:
        """The same with measured times for some layers: (output length, ms) each."""
        layers = (
            one.model_copy(update={"stairs": tuple(sorted(stairs.get(one.layer, one.stairs)))})
            for one in self.layers
        )
        return self.model_copy(update={"layers": tuple(layers)})

    @property
    def title(self) -> str:
        """What the model is counted from."""
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
    return prod(now[place] / full[place] for place in lengths)


def _ms(one: CutLayer, now: Sequence[int], full: Sequence[int]) -> float:
    """A layer's stairs tell how its time goes with its first length; the other lengths count in
    proportion.
    """
    if not one.stairs or not one.lengths:
        return one.ms * _share(one.lengths, now, full)
    first, *others = one.lengths
    whole = _climbed(one.stairs, full[first])
    step = _climbed(one.stairs, now[first]) / whole if whole > 0 else 1.0
    return one.ms * step * _share(others, now, full)


def _climbed(stairs: Sequence[tuple[float, float]], length: float) -> float:
    """The time at a length: on the straight line between its neighbours, beyond the ends that of
    the end.
    """
    below_at, below_ms = -inf, stairs[0][1]
    for at, ms in stairs:
        if length <= at:
            return (
                ms
                if below_at == -inf
                else below_ms + (ms - below_ms) * (length - below_at) / (at - below_at)
            )
        below_at, below_ms = at, ms
    return below_ms
