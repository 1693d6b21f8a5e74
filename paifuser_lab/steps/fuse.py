"""Run layers as one with what follows them: a sum, an activation. On a CPU their weights are packed
for the processor, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from fnmatch import fnmatchcase
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ..fusion import Choice, fuse, fuse_again, packed_bytes
from ..records import counted, readable_bytes
from .step import Draft, Step, matching


class Fuse(Step):
    """Run every layer as one with what follows it where that is quicker here; a place is named by
    its layer.

    Each place is tried on its input in the example run, timed both ways and compared with
    the layers apart. Places switched off stay apart; those switched on run as one even where that
    is slower. Training, compiling and exporting see the layers apart.

    Several such steps act as one. A later step does what it does alone and keeps what the earlier
    ones fused and switched, but for what it names itself: its `off` takes apart what they fused,
    its `on` and the patterns of its `layers` lift their `off`.
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
    def _says_one_thing(self) -> Fuse:
        if both := set(self.off) & set(self.on):
            raise ValueError(f"'{sorted(both)[0]}' is both on and off; say one of them")
        return self

    @property
    def label(self) -> str:
        return f"fuse · {len(self.off)} off" if self.off else "fuse"

    def joined(self, newer: Self) -> Self | None:
        """Both as one step, the newer switches over the older ones; None where patterns cannot say
        that.
        """
        lifting = [*newer.on, *_named(newer.layers)]
        off = [one for one in self.off if one not in lifting]
        if any(_may_overlap(one, other) for one in off for other in lifting):
            return None
        merged = {
            "layers": _merged(self.layers, newer.layers),
            "off": _merged(off, newer.off),
            "on": _merged([one for one in self.on if one not in newer.off], newer.on),
        }
        return self.model_copy(update={**merged, "why": None})

    def apply(self, draft: Draft) -> None:
        """Find the places, try them, and let those run as one that gain by it."""
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
        for one in done.fusions.fusions:
            if one.standing == "apart":
                apart[one.reason].append(one.place)
        draft.notes += [_apart(places, reason) for reason, places in apart.items()]

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Let the same places run as one, and no others."""
        fuse_again(draft.module, remembered)


def _named(layers: list[str]) -> list[str]:
    """The patterns that name some of the places; '*' alone names none of them in particular."""
    return [one for one in layers if one != "*"]


def _merged(older: list[str], newer: list[str]) -> list[str]:
    return [*older, *(one for one in newer if one not in older)]


def _may_overlap(one: str, other: str) -> bool:
    """Whether one place may fit both patterns."""
    return (
        fnmatchcase(one, other)
        or fnmatchcase(other, one)
        or all(set("*?[") & set(pattern) for pattern in (one, other))
    )


def _choice_of(steps: Iterable[Step]) -> Choice:
    """What the `fuse` steps of a recipe say together, the later ones over the earlier ones."""
    switches = [step for step in steps if isinstance(step, Fuse)]

    def picked(places: list[str]) -> tuple[set[str], set[str], set[str]]:
        wanted, off, on = set[str](), set[str](), set[str]()
        for step in switches:
            named, newly_off, newly_on = (
                _picked(_named(step.layers), places),
                _picked(step.off, places),
                _picked(step.on, places),
            )
            wanted |= _picked(step.layers, places)
            off = (off - named - newly_on) | newly_off
            on = (on | newly_on) - newly_off
        return wanted, off, on

    return Choice(
        lambda places: picked(places)[0],
        lambda places: picked(places)[1],
        lambda places: picked(places)[2],
    )


def _apart(places: list[str], reason: str) -> str:
    """Why places stay apart, those of one reason together."""
    if len(places) == 1:
        return f"'{places[0]}' stays apart: {reason}"
    return f"'{places[0]}' and {len(places) - 1} more stay apart: {reason}"


def _picked(patterns: list[str], places: list[str]) -> set[str]:
    """The places that patterns pick; '*' may pick none."""
    return {
        one
        for pattern in patterns
        for one in (places if pattern == "*" else matching(places, pattern, what="fuse"))
    }
