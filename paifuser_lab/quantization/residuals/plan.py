"""Which values are rounded before they meet in a sum, and by whom.

A sum is computed on integers where an int8 layer reads it, or where it adds up what an int8
convolution makes, which few runtimes can give as a number. Then all that enters it has to be
rounded: by the int8 layer that makes it, or where a module output_ranges it. What others want as
numbers is never rounded for a sum's sake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...formats import Range
from ...model.graph import Graph
from ..layers.int8 import Requantization
from ..neighbours import Clamp
from .sources import Source, sources_of


@dataclass(frozen=True)
class Rounding:
    """How something is rounded: to the range of the layer that reads it in int8, or else to that of
    an output.
    """

    consumer: str | None
    output: str
    clamp: Clamp | None = None
    is_shared: bool = True  # the rounding is shown here; for the others a module after it shows it

    def span(self, input_ranges: Mapping[str, Range], output_ranges: Mapping[str, Range]) -> Range:
        """The range, from those of the layers' inputs and of outputs."""
        own = output_ranges[self.output] if self.consumer is None else input_ranges[self.consumer]
        if self.consumer is not None or self.clamp is None:
            return own
        low, high = self.clamp
        return Range(max(own.low, low), own.high if high is None else min(own.high, high))


@dataclass(frozen=True)
class ResidualPlan:
    """The int8 layers and the modules whose outputs are rounded, and the int8 layers that read what
    a module has rounded for them.
    """

    layers: dict[str, Rounding] = field(default_factory=dict)
    modules: dict[str, Rounding] = field(default_factory=dict)
    consumers: frozenset[str] = frozenset()
    sums: int = 0

    @property
    def unknown(self) -> list[str]:
        """Whose outputs' ranges are needed."""
        return [
            rounding.output
            for rounding in (*self.layers.values(), *self.modules.values())
            if rounding.consumer is None
        ]

    def requantizations(
        self, input_ranges: Mapping[str, Range], output_ranges: Mapping[str, Range]
    ) -> dict[str, Requantization]:
        """How the layers pass on."""
        return {
            layer: Requantization(one.span(input_ranges, output_ranges), one.clamp, one.is_shared)
            for layer, one in self.layers.items()
        }

    def spans(
        self, input_ranges: Mapping[str, Range], output_ranges: Mapping[str, Range]
    ) -> dict[str, Range]:
        """What the modules' outputs are rounded to."""
        return {
            module: one.span(input_ranges, output_ranges) for module, one in self.modules.items()
        }


def plan_residuals(graph: Graph, input_ranges: Mapping[str, Range]) -> ResidualPlan:
    """Decide from a run which sums are computed on integers; `given` are the ranges of the inputs
    of int8 layers.
    """
    sources = sources_of(graph, input_ranges)
    chosen = _chosen([one for one in sources if one.summands])
    entering = {id(one): one for each in chosen for one in each.summands}
    read_often = {
        id(one): one for one in chosen if len(one.consumers) > 1 and _can_be_rounded(one, chosen)
    }
    pooled = {id(one): one for one in sources if _is_pooled(one) and _can_be_rounded(one, chosen)}
    rounded = (pooled | read_often | entering).values()
    layers: dict[str, Rounding] = {}
    modules: dict[str, Rounding] = {}
    consumers: set[str] = set()
    for one in rounded:
        consumer, module = (
            _consumer(one, input_ranges),
            _outputting_module(one) if _is_passed_on(one) else None,
        )
        if one.layer is not None:
            layers[one.layer] = Rounding(
                consumer, module or one.layer, _clamp(one), is_shared=module is None
            )
        if module is not None:
            modules[module] = Rounding(consumer, module)
            consumers.update(one.consumers if consumer else ())
    return ResidualPlan(layers, modules, frozenset(consumers), len(chosen))


def _chosen(sums: list[Source]) -> list[Source]:
    """The sums all of whose summands can be rounded; one that falls out may take others with it."""
    while True:
        kept = [
            one
            for one in sums
            if _pays(one) and all(_can_be_rounded(each, sums) for each in one.summands)
        ]
        if len(kept) == len(sums):
            return kept
        sums = kept


def _pays(one: Source) -> bool:
    return bool(one.consumers) or any(each.is_convolution for each in one.summands)


def _is_pooled(one: Source) -> bool:
    """Whether an int8 layer makes it, others read it, and it is pooled between them: rounded
    before, it is pooled in int8.
    """
    return one.layer is not None and bool(one.consumers) and any(read.picks for read in one.reads)


def _can_be_rounded(one: Source, sums: list[Source]) -> bool:
    """Whether nothing but int8 layers and these sums read it, and something can round it."""
    finals = [read for read in one.reads if not read.passes]
    wanted = all(
        read.consumer is not None or any(read.into is each for each in sums) for read in finals
    )
    return wanted and (one.layer is not None or _outputting_module(one) is not None)


def _outputting_module(one: Source) -> str | None:
    """The last module that outputs it before anybody who counts reads it, or picks some of it;
    whatever is read later comes from there.
    """
    able = [
        (module, at)
        for module, tensor, at in one.answers
        if all(read.passes and not read.picks for read in one.reads if read.at < at)
        and all(
            read.tensor == tensor or one.made_at[read.tensor] >= at
            for read in one.reads
            if read.at >= at
        )
    ]
    return (
        max(able, key=lambda each: each[1])[0] if able else None
    )  # the innermost of those that output at once


def _is_passed_on(one: Source) -> bool:
    """Whether something else than the layer that makes it can round it as late as it is read."""
    return one.layer is None or any(read.passes for read in one.reads)


def _consumer(one: Source, input_ranges: Mapping[str, Range]) -> str | None:
    """An int8 layer that reads it, where all others read the very same values: they want the range
    that it wants.
    """
    finals = [read for read in one.reads if not read.passes]
    is_one_value = (
        len({read.changes for read in finals}) == 1
        and len({input_ranges[consumer] for consumer in one.consumers}) == 1
    )
    return one.consumers[0] if is_one_value else None


def _clamp(one: Source) -> Clamp | None:
    """What alone reads a layer's own output and clamps it: the layer does that on the way."""
    own = [read for read in one.reads if not read.changes]
    return own[0].clamp if len(own) == 1 else None
