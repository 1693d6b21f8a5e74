"""Which values are rounded before they meet in a sum, and by whom.

A sum is computed on whole numbers where an int8 layer reads it, or where it adds up what an int8
convolution makes, which few runtimes can give as a number. Then all that enters it has to be
rounded: by the int8 layer that makes it, or where a module answers it. What others want as numbers
is never rounded for a sum's sake.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...formats import Range
from ...model.graph import Graph
from ..layers.int8 import Outlet
from ..neighbours import Clamp
from .sources import Source, sources_of


@dataclass(frozen=True)
class Giving:
    """How something is rounded: to the range of the layer that reads it in int8, or else to that of
    an answer.
    """

    taker: str | None
    answer: str
    clamp: Clamp | None = None
    is_shared: bool = True  # the rounding is shown here; for the others a module after it shows it

    def span(self, given: Mapping[str, Range], answers: Mapping[str, Range]) -> Range:
        """The range, from those of what layers are given and of answers."""
        own = answers[self.answer] if self.taker is None else given[self.taker]
        if self.taker is not None or self.clamp is None:
            return own
        low, high = self.clamp
        return Range(max(own.low, low), own.high if high is None else min(own.high, high))


@dataclass(frozen=True)
class SumsPlan:
    """The int8 layers and the modules whose answers are rounded, and the int8 layers that read what
    a module has rounded for them.
    """

    layers: dict[str, Giving] = field(default_factory=dict)
    modules: dict[str, Giving] = field(default_factory=dict)
    takers: frozenset[str] = frozenset()
    sums: int = 0

    @property
    def unknown(self) -> list[str]:
        """Whose answers' ranges are needed."""
        return [
            giving.answer
            for giving in (*self.layers.values(), *self.modules.values())
            if giving.taker is None
        ]

    def outlets(
        self, given: Mapping[str, Range], answers: Mapping[str, Range]
    ) -> dict[str, Outlet]:
        """How the layers hand on."""
        return {
            layer: Outlet(one.span(given, answers), one.clamp, one.is_shared)
            for layer, one in self.layers.items()
        }

    def spans(self, given: Mapping[str, Range], answers: Mapping[str, Range]) -> dict[str, Range]:
        """What the modules' answers are rounded to."""
        return {module: one.span(given, answers) for module, one in self.modules.items()}


def plan_sums(graph: Graph, given: Mapping[str, Range]) -> SumsPlan:
    """Decide from a run which sums are computed on whole numbers; `given` are the ranges of what
    int8 layers are given.
    """
    sources = sources_of(graph, given)
    chosen = _chosen([one for one in sources if one.summands])
    entering = {id(one): one for each in chosen for one in each.summands}
    read_often = {
        id(one): one for one in chosen if len(one.takers) > 1 and _can_be_rounded(one, chosen)
    }
    pooled = {id(one): one for one in sources if _is_pooled(one) and _can_be_rounded(one, chosen)}
    rounded = (pooled | read_often | entering).values()
    layers: dict[str, Giving] = {}
    modules: dict[str, Giving] = {}
    takers: set[str] = set()
    for one in rounded:
        taker, module = _taker(one, given), _answering(one) if _is_passed_on(one) else None
        if one.layer is not None:
            layers[one.layer] = Giving(
                taker, module or one.layer, _clamp(one), is_shared=module is None
            )
        if module is not None:
            modules[module] = Giving(taker, module)
            takers.update(one.takers if taker else ())
    return SumsPlan(layers, modules, frozenset(takers), len(chosen))


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
    return bool(one.takers) or any(each.is_convolution for each in one.summands)


def _is_pooled(one: Source) -> bool:
    """Whether an int8 layer makes it, others read it, and it is pooled between them: rounded
    before, it is pooled in int8.
    """
    return one.layer is not None and bool(one.takers) and any(read.picks for read in one.reads)


def _can_be_rounded(one: Source, sums: list[Source]) -> bool:
    """Whether nobody but int8 layers and these sums read it, and somebody can round it."""
    finals = [read for read in one.reads if not read.passes]
    wanted = all(
        read.taker is not None or any(read.into is each for each in sums) for read in finals
    )
    return wanted and (one.layer is not None or _answering(one) is not None)


def _answering(one: Source) -> str | None:
    """The last module that answers it before anybody who counts reads it, or picks some of it;
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
    )  # the innermost of those that answer at once


def _is_passed_on(one: Source) -> bool:
    """Whether somebody else than the layer that makes it can round it as late as it is read."""
    return one.layer is None or any(read.passes for read in one.reads)


def _taker(one: Source, given: Mapping[str, Range]) -> str | None:
    """An int8 layer that reads it, where all others read the very same values: they want the range
    that it wants.
    """
    finals = [read for read in one.reads if not read.passes]
    is_one_value = (
        len({read.changes for read in finals}) == 1
        and len({given[taker] for taker in one.takers}) == 1
    )
    return one.takers[0] if is_one_value else None


def _clamp(one: Source) -> Clamp | None:
    """What alone reads a layer's own answer and clamps it: the layer does that on the way."""
    own = [read for read in one.reads if not read.changes]
    return own[0].clamp if len(own) == 1 else None
