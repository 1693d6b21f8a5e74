"""Fuses layers with a sum and an activation after them; on a CPU it also packs their weights."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ..fusion import Switches, fuse, fuse_again, packed_bytes
from ..records import counted, readable_bytes
from .step import Draft, Step, matching


class Fuse(Step):
    """Fuse every layer with what follows it where that is faster here; a site is named by its
    layer.

    Each site is run on its input in the example run, timed fused and unfused, and compared with
    the unfused layers. Sites that are switched off stay unfused; those switched on are fused even
    where that is slower. Training, compilation and export see the unfused layers.

    Several such steps act as one. A later step does what it does alone and keeps what the earlier
    ones fused and switched, except for what it names itself: its `off` unfuses what they fused, its
    `on` and the patterns of its `layers` undo their `off`.
    """

    kind: ClassVar[str] = "fuse"
    tolerance: ClassVar[float | None] = 1e-4
    is_late: ClassVar[bool] = True
    layers: list[str] = Field(
        default=["*"], description="patterns of the layers that name the places"
    )
    off: list[str] = Field(default=[], description="patterns of places that stay apart")
    on: list[str] = Field(
        default=[], description="patterns of places that run as one even where that is slower"
    )

    @model_validator(mode="after")
    def _check_switches(self) -> Fuse:
        if both := set(self.off) & set(self.on):
            raise ValueError(f"'{sorted(both)[0]}' is both on and off; choose one")
        return self

    @property
    def label(self) -> str:
        return f"fuse · {len(self.off)} off" if self.off else "fuse"

    def joined(self, newer: Self) -> Self | None:
        """Both as one step, the newer switches first; None if patterns cannot express that."""
        lifting = [*newer.on, *_named(newer.layers)]
        off = [pattern for pattern in self.off if pattern not in lifting]
        if any(_may_overlap(pattern, other) for pattern in off for other in lifting):
            return None
        merged = {
            "layers": _merged(self.layers, newer.layers),
            "off": _merged(off, newer.off),
            "on": _merged([pattern for pattern in self.on if pattern not in newer.off], newer.on),
        }
        return self.model_copy(update={**merged, "why": None})

    def apply(self, draft: Draft) -> None:
        """Find the sites, evaluate them, and fuse those that gain."""
        done = fuse(draft.module, draft.work, _choice_of((*draft.earlier, self)), draft.should_stop)
        draft.remembered = done.remembered
        draft.notes += [done.fusions.summary.rstrip("."), *done.fusions.notes]
        if packed := packed_bytes(draft.module):
            draft.notes.append(
                f"weights packed for the processor take {readable_bytes(packed)} beside the weights"
            )
        if done.folded:
            draft.notes.append(f"folded {counted(len(done.folded), 'batch-norm layer')}")
        apart = defaultdict(list)
        for site in done.fusions.fusions:
            if site.standing == "apart":
                apart[site.reason].append(site.place)
        draft.notes += [_apart(places, reason) for reason, places in apart.items()]

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Fuse the same sites, and no others."""
        fuse_again(draft.module, remembered)


def _named(layers: list[str]) -> list[str]:
    """The patterns that name particular sites; '*' does not."""
    return [pattern for pattern in layers if pattern != "*"]


def _merged(older: list[str], newer: list[str]) -> list[str]:
    return [*older, *(pattern for pattern in newer if pattern not in older)]


def _may_overlap(first: str, second: str) -> bool:
    """Whether a site may match both patterns."""
    return (
        fnmatchcase(first, second)
        or fnmatchcase(second, first)
        or all(set("*?[") & set(pattern) for pattern in (first, second))
    )


def _choice_of(steps: Iterable[Step]) -> Callable[[list[str]], Switches]:
    """The combined choice of the `fuse` steps of a recipe, the later ones over the earlier ones."""
    switches = [step for step in steps if isinstance(step, Fuse)]

    def picked(sites: list[str]) -> Switches:
        selected, off, on = set[str](), set[str](), set[str]()
        for step in switches:
            named, newly_off = _picked(_named(step.layers), sites), _picked(step.off, sites)
            newly_on = _picked(step.on, sites)
            selected |= _picked(step.layers, sites)
            off = (off - named - newly_on) | newly_off
            on = (on | newly_on) - newly_off
        return Switches(selected, off, on)

    return picked


def _apart(sites: list[str], reason: str) -> str:
    """A note on why sites stay unfused, those of one reason together."""
    if len(sites) == 1:
        return f"'{sites[0]}' stays apart: {reason}"
    return f"'{sites[0]}' and {len(sites) - 1} more stay apart: {reason}"


def _picked(patterns: list[str], sites: list[str]) -> set[str]:
    """The sites that patterns match; '*' may match none."""
    return {
        site
        for pattern in patterns
        for site in (sites if pattern == "*" else matching(sites, pattern, what="fuse"))
    }
