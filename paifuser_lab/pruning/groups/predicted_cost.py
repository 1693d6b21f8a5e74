"""The predicted cost of fewer channels, before anything is cut: each weight's dimensions by the
groups that their places belong to.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod

import numpy
from torch import Tensor, nn

from ...records import ChannelGroup, CutCost, CutLayer, CutWeights, LayerProfile, Length, Profile
from .channel_ids import Numbers
from .grouping import Structure
from .product import Product, Row

NO_GROUP = -1
Dimensions = dict[int, Length]
ALWAYS_ONE = Length(fixed=1, terms=())


def cut_cost(model: nn.Module, structure: Structure, profile: Profile) -> CutCost:
    """The cost of a model by the widths of its groups; `profile` is of the model as it is."""
    found = _CostPrediction(model, structure, profile)
    weights = found.weights()
    layers = [one for row in profile for one in found.layers(row)]
    lengths = tuple(found.lengths)
    full = [length.at([group.width for group in structure.groups]) for length in lengths]
    shrinking = sum(one.times * prod(full[place] for place in one.lengths) for one in weights)
    return CutCost(
        workload=profile.workload,
        groups=structure.groups,
        lengths=lengths,
        weights=weights,
        layers=tuple(layers),
        other_parameters=sum(weight.numel() for weight in model.parameters()) - shrinking,
        other_flops=2 * profile.root.total_macs - sum(one.flops for one in layers),
        latency_ms=profile.latency_ms,
    )


class _CostPrediction:
    """The different lengths found so far, each with its place, and how wide the layers' answers
    are.
    """

    def __init__(self, model: nn.Module, structure: Structure, profile: Profile) -> None:
        self.profile = profile
        self.pace = (
            profile.latency_ms / profile.root.total_ms if profile.root.total_ms else 1.0
        )  # rows were timed in other runs
        self.parameters = dict(model.named_parameters())
        self.owned = _owners(structure)[structure.classes]
        self.dimensions = _dimensions(structure, self.owned)
        self.groups = structure.groups
        self.inside = _inside(structure, profile)
        self.main = _main_weights(model)
        made = [
            member
            for group in structure.groups
            for member in group.members
            if member.kind == "rows"
        ]
        self.rows = {member.weight: member.dimension for member in made}
        self.lengths: dict[Length, int] = {}
        self.answers: dict[str, Length] = {}

    def weights(self) -> tuple[CutWeights, ...]:
        """All weights that can shrink; those that shrink alike as one."""
        counted: Counter[tuple[int, ...]] = Counter()
        for name, weight in self.parameters.items():
            if varying := self._varying(name):
                counted[self._places(varying.values())] += _beside(weight, varying)
        return tuple(CutWeights(times=times, lengths=lengths) for lengths, times in counted.items())

    def layers(self, row: LayerProfile) -> list[CutLayer]:
        """What of a layer's work changes with the widths: all of it together, or what it multiplies
        for those inside it.
        """
        inside = self.inside.get(row.layer, []) if row.macs else []
        found = [
            self._product(row, one, _work(one) / sum(map(_work, inside))) for one in inside
        ] or [self._whole(row)]
        return [one for one in found if one is not None]

    def _product(self, row: LayerProfile, product: Product, share: float) -> CutLayer | None:
        """One product of a layer that does the work of others, as torch's fused encoder layer does;
        its share of the work.
        """
        varying = [length for size in product.sizes if (length := self._size(size)).terms]
        if not varying:
            return None
        flops, ms = round(2 * row.macs * share), self._busy_ms(row) * share
        return CutLayer(layer=row.layer, flops=flops, ms=ms, lengths=self._places(varying))

    def _whole(self, row: LayerProfile) -> CutLayer | None:
        """A layer whose work changes with the widths, that of its rows first; None for one whose
        work does not.
        """
        own = self.main.get(row.layer, "")
        first = self.rows.get(own, -1)
        answer = self._answer(row.layer)
        varying = self._varying(own) if own else {0: answer} if answer.terms else {}
        if not varying or not (row.self_ms or row.macs):
            return None
        ordered = sorted(varying, key=lambda dimension: (dimension != first, dimension))
        lengths = self._places(varying[dimension] for dimension in ordered)
        return CutLayer(layer=row.layer, flops=2 * row.macs, ms=self._busy_ms(row), lengths=lengths)

    def _busy_ms(self, row: LayerProfile) -> float:
        return (
            max(0.0, row.self_ms - row.overhead_ms) * self.pace
        )  # what calling it costs, it costs at any width

    def _answer(self, layer: str) -> Length:
        """By the rows of its weight; without a weight by all that it reads, which only has to be in
        proportion.
        """
        if layer not in self.answers:
            self.answers[layer] = (
                ALWAYS_ONE  # for whoever reads, through others, what it gives itself
            )
            own = self.main.get(layer, "")
            read = self.profile[layer].reads_from if layer in self.profile else ()
            rows = self.dimensions.get(own, {}).get(self.rows.get(own, -1), ALWAYS_ONE)
            self.answers[layer] = rows if own else _together([self._answer(one) for one in read])
        return self.answers[layer]

    def _varying(self, weight: str) -> Dimensions:
        return {
            dimension: length
            for dimension, length in self.dimensions.get(weight, {}).items()
            if length.terms
        }

    def _size(self, row: Row) -> Length:
        return (
            Length(fixed=row, terms=())
            if isinstance(row, int)
            else _length(len(row), self.owned[row], self.groups)
        )

    def _places(self, lengths: Iterable[Length]) -> tuple[int, ...]:
        return tuple(self.lengths.setdefault(length, len(self.lengths)) for length in lengths)


def _main_weights(model: nn.Module) -> dict[str, str]:
    """The largest weight that is each layer's own, by which its work goes; under its first name
    where several share it.
    """
    first = {id(weight): name for name, weight in model.named_parameters()}
    largest: dict[str, Tensor] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        layer = name.rpartition(".")[0]
        if layer not in largest or weight.numel() > largest[layer].numel():
            largest[layer] = weight
    return {layer: first[id(weight)] for layer, weight in largest.items()}


def _inside(structure: Structure, profile: Profile) -> dict[str, list[Product]]:
    """What layers multiply whose work was seen in a layer around them, by that layer; with what it
    multiplies itself.
    """
    found: dict[str, list[Product]] = {}
    for one in structure.space.multiplied:
        found.setdefault(_seen_in(one.layer, profile), []).append(one)
    return {
        layer: ones
        for layer, ones in found.items()
        if any(one.layer != layer for one in ones) and any(_work(one) for one in ones)
    }


def _seen_in(layer: str, profile: Profile) -> str:
    """The nearest layer, itself or around it, that was seen to multiply."""
    while layer and not (layer in profile and profile[layer].macs):
        layer = layer.rpartition(".")[0]
    return layer


def _work(product: Product) -> int:
    return product.times * prod(
        size if isinstance(size, int) else len(size) for size in product.sizes
    )


def _owners(structure: Structure) -> Numbers:
    """The group of each class of channel ids that can lose units."""
    owners: Numbers = numpy.full(
        int(structure.classes.max(initial=0)) + 1, NO_GROUP, dtype=numpy.int64
    )
    for place, units in enumerate(structure.units):
        if structure.groups[place].pinned is None:
            owners[list(units)] = place
    return owners


def _dimensions(structure: Structure, owned: Numbers) -> dict[str, Dimensions]:
    """The length of every dimension of every weight, by the groups that can lose units."""
    found: dict[str, Dimensions] = {}
    for span in (one for one in structure.spans if one.weight):
        length = _length(span.stop - span.start, owned[span.start : span.stop], structure.groups)
        found.setdefault(span.weight, {})[span.dimension] = length
    return found


def _length(size: int, owned: Numbers, groups: Sequence[ChannelGroup]) -> Length:
    """A dimension by the groups that its places belong to."""
    counts = Counter(owned[owned != NO_GROUP].tolist())
    terms = tuple((group, count // groups[group].width) for group, count in sorted(counts.items()))
    return Length(fixed=size - sum(counts.values()), terms=terms)


def _beside(weight: Tensor, varying: Dimensions) -> int:
    """How many places a weight has for each place of the dimensions that vary."""
    return prod(size for dimension, size in enumerate(weight.shape) if dimension not in varying)


def _together(lengths: Sequence[Length]) -> Length:
    """The lengths one after the other; of nothing a single place, which nothing changes."""
    terms: Counter[int] = Counter()
    for length in lengths:
        terms.update(dict(length.terms))
    return (
        Length(fixed=sum(length.fixed for length in lengths), terms=tuple(sorted(terms.items())))
        if lengths
        else ALWAYS_ONE
    )
