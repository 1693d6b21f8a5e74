"""The predicted cost of fewer channels, before any cut, by the groups along each weight."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from math import prod

import numpy
from torch import Tensor, nn

from ...records import CutCost, CutLayer, CutWeights, LayerProfile, Length, Profile
from .costs import Size, Sizes
from .grouping import Structure
from .label_space import Product

Dimensions = dict[int, Length]
ALWAYS_ONE = Length(fixed=1, terms=())


def cut_cost(model: nn.Module, structure: Structure, profile: Profile) -> CutCost:
    """The cost as a function of the widths of groups; `profile` is of the uncut model."""
    prediction = _CostPrediction(model, structure, profile)
    weights = prediction.weights()
    layers = [layer for row in profile for layer in prediction.layers(row)]
    lengths = tuple(prediction.lengths)
    full = [length.at([group.width for group in structure.groups]) for length in lengths]
    shrinking = sum(
        weight.times * prod(full[index] for index in weight.lengths) for weight in weights
    )
    return CutCost(
        workload=profile.workload,
        groups=structure.groups,
        lengths=lengths,
        weights=weights,
        layers=tuple(layers),
        other_parameters=sum(weight.numel() for weight in model.parameters()) - shrinking,
        other_flops=2 * profile.root.total_macs - sum(layer.flops for layer in layers),
        latency_ms=profile.latency_ms,
    )


class _CostPrediction:
    """The distinct lengths, each with its index, and the output width of each layer."""

    def __init__(self, model: nn.Module, structure: Structure, profile: Profile) -> None:
        self.profile = profile
        # the rows were timed in other runs than the latency
        total_ms = profile.root.total_ms
        self.pace = profile.latency_ms / total_ms if total_ms else 1.0
        self.parameters = dict(model.named_parameters())
        self.sizes = Sizes(structure)
        self.dimensions = _dimensions(structure, self.sizes)
        self.inside = _inside(structure, profile)
        self.main = _main_weights(model)
        members = [
            member
            for group in structure.groups
            for member in group.members
            if member.kind == "rows"
        ]
        self.rows = {member.weight: member.dimension for member in members}
        self.lengths: dict[Length, int] = {}
        self.output_lengths: dict[str, Length] = {}

    def weights(self) -> tuple[CutWeights, ...]:
        """All weights that can shrink; those with equal lengths are added up."""
        counted: Counter[tuple[int, ...]] = Counter()
        for name, weight in self.parameters.items():
            if varying := self._varying(name):
                counted[self._places(varying.values())] += prod(
                    size for dimension, size in enumerate(weight.shape) if dimension not in varying
                )
        return tuple(CutWeights(times=times, lengths=lengths) for lengths, times in counted.items())

    def layers(self, row: LayerProfile) -> list[CutLayer]:
        """A layer's work that depends on the widths: as a whole, or by the products inside it."""
        inside = self.inside.get(row.layer, []) if row.macs else []
        layers = [
            self._product(row, product, _work(product) / sum(map(_work, inside)))
            for product in inside
        ] or [self._whole(row)]
        return [layer for layer in layers if layer is not None]

    def _product(self, row: LayerProfile, product: Product, share: float) -> CutLayer | None:
        """One product of a layer that does the work of others, as torch's fused encoder layer does,
        with its share of the work.
        """
        lengths = [_length(self.sizes.of(row)) for row in product.sizes]
        varying = [length for length in lengths if length.terms]
        if not varying:
            return None
        flops, ms = round(2 * row.macs * share), self._busy_ms(row) * share
        return CutLayer(layer=row.layer, flops=flops, ms=ms, lengths=self._places(varying))

    def _whole(self, row: LayerProfile) -> CutLayer | None:
        """A layer whose work depends on the widths, its rows first; None for any other."""
        own = self.main.get(row.layer, "")
        first = self.rows.get(own, -1)
        output = self._output_length(row.layer)
        varying = self._varying(own) if own else {0: output} if output.terms else {}
        if not varying or not (row.self_ms or row.macs):
            return None
        ordered = sorted(varying, key=lambda dimension: (dimension != first, dimension))
        lengths = self._places(varying[dimension] for dimension in ordered)
        return CutLayer(layer=row.layer, flops=2 * row.macs, ms=self._busy_ms(row), lengths=lengths)

    def _busy_ms(self, row: LayerProfile) -> float:
        # the overhead of the call does not depend on the width
        return max(0.0, row.self_ms - row.overhead_ms) * self.pace

    def _output_length(self, layer: str) -> Length:
        """The output length by the rows of the layer's weight; without a weight that of all its
        inputs, since only the proportion matters.
        """
        if layer not in self.output_lengths:
            self.output_lengths[layer] = (
                ALWAYS_ONE  # ends the recursion where layers read each other's outputs
            )
            own = self.main.get(layer, "")
            read = self.profile[layer].reads_from if layer in self.profile else ()
            rows = self.dimensions.get(own, {}).get(self.rows.get(own, -1), ALWAYS_ONE)
            self.output_lengths[layer] = (
                rows if own else _together([self._output_length(source) for source in read])
            )
        return self.output_lengths[layer]

    def _varying(self, weight: str) -> Dimensions:
        return {
            dimension: length
            for dimension, length in self.dimensions.get(weight, {}).items()
            if length.terms
        }

    def _places(self, lengths: Iterable[Length]) -> tuple[int, ...]:
        return tuple(self.lengths.setdefault(length, len(self.lengths)) for length in lengths)


def _main_weights(model: nn.Module) -> dict[str, str]:
    """Each layer's largest own weight, under the first name of a shared one."""
    first = {id(weight): name for name, weight in model.named_parameters()}
    largest: dict[str, Tensor] = {}
    for name, weight in model.named_parameters(remove_duplicate=False):
        layer = name.rpartition(".")[0]
        if layer not in largest or weight.numel() > largest[layer].numel():
            largest[layer] = weight
    return {layer: first[id(weight)] for layer, weight in largest.items()}


def _inside(structure: Structure, profile: Profile) -> dict[str, list[Product]]:
    """For each layer whose work includes that of layers inside it: the products of all of them."""
    inside: dict[str, list[Product]] = {}
    for product in structure.space.products:
        inside.setdefault(_seen_in(product.layer, profile), []).append(product)
    return {
        layer: products
        for layer, products in inside.items()
        if any(product.layer != layer for product in products) and any(map(_work, products))
    }


def _seen_in(layer: str, profile: Profile) -> str:
    """The nearest layer, itself or around it, whose profile has multiply-adds."""
    while layer and not (layer in profile and profile[layer].macs):
        layer = layer.rpartition(".")[0]
    return layer


def _work(product: Product) -> int:
    return product.times * prod(
        size if isinstance(size, int) else len(size) for size in product.sizes
    )


def _dimensions(structure: Structure, sizes: Sizes) -> dict[str, Dimensions]:
    """The length of every dimension of every weight, in terms of the groups that can lose units."""
    dimensions: dict[str, Dimensions] = {}
    for span in filter(lambda span: span.weight, structure.spans):
        length = _length(sizes.of(numpy.arange(span.start, span.stop)))
        dimensions.setdefault(span.weight, {})[span.dimension] = length
    return dimensions


def _length(size: Size) -> Length:
    """A size as a record, which counts whole elements per unit."""
    terms = tuple((group, int(elements)) for group, elements in size.per_unit)
    return Length(fixed=int(size.stays), terms=terms)


def _together(lengths: Sequence[Length]) -> Length:
    """The sum of the lengths; of no lengths the constant 1."""
    terms: Counter[int] = Counter()
    for length in lengths:
        terms.update(dict(length.terms))
    return (
        Length(fixed=sum(length.fixed for length in lengths), terms=tuple(sorted(terms.items())))
        if lengths
        else ALWAYS_ONE
    )
