"""Run layers as one with what follows them: a sum, an activation. On a CPU their weights are packed for the processor, too."""

from __future__ import annotations

from collections import defaultdict
from typing import Any, ClassVar, Self

from pydantic import Field, model_validator

from ..fusing import Choice, fuse, fuse_again, packed_bytes
from ..records import counted, readable_bytes
from .step import Draft, Step, matching


class Fuse(Step):
    """Run every layer as one with what follows it where that is quicker here; a place is named by its layer.

    Each place is tried on what it is given in the example run, timed both ways and compared with the layers apart. Places switched
    off stay apart; those switched on run as one even where that is slower. Training, compiling and exporting see the layers apart.
    """

    kind: ClassVar[str] = "fuse"
    tolerance: ClassVar[float | None] = 1e-4
    is_late: ClassVar[bool] = True
    layers: list[str] = Field(default=["*"], description="patterns of the layers that name the places")
    off: list[str] = Field(default=[], description="patterns of places that stay apart")
    on: list[str] = Field(default=[], description="patterns of places that run as one even where that is slower")

    @model_validator(mode="after")
    def _says_one_thing(self) -> Fuse:
        if both := set(self.off) & set(self.on):
            raise ValueError(f"'{sorted(both)[0]}' is both on and off; say one of them")
        return self

    @property
    def label(self) -> str:
        return f"fuse · {len(self.off)} off" if self.off else "fuse"

    def joined(self, newer: Self) -> Self | None:
        """The newer switches over the older ones."""
        off = [*(one for one in self.off if one not in newer.on), *(one for one in newer.off if one not in self.off)]
        on = [*(one for one in self.on if one not in newer.off), *(one for one in newer.on if one not in self.on)]
        layers = newer.layers if "layers" in newer.model_fields_set else self.layers
        return self.model_copy(update={"layers": layers, "off": off, "on": on, "why": None})

    def apply(self, draft: Draft) -> None:
        """Find the places, try them, and let those run as one that gain by it."""
        choice = Choice(_picker(self.layers), _picker(self.off), _picker(self.on))
        done = fuse(draft.module, draft.work, choice, draft.should_stop)
        draft.remembered = done.remembered
        draft.notes.append(done.fusions.summary.rstrip("."))
        if packed := packed_bytes(draft.module):
            draft.notes.append(f"weights packed for the processor take {readable_bytes(packed)} beside the weights")
        if done.folded:
            draft.notes.append(f"folded {counted(len(done.folded), 'batch-norm layer')}")
        apart = defaultdict(list)
        for one in done.fusions.fusions:
            if one.standing == "apart":
                apart[one.reason].append(one.place)
        draft.notes += [_apart(places, reason) for reason, places in apart.items()]

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Let the same places run as one."""
        fuse_again(draft.module, remembered)


def _apart(places: list[str], reason: str) -> str:
    """Why places stay apart, those of one reason together."""
    if len(places) == 1:
        return f"'{places[0]}' stays apart: {reason}"
    return f"'{places[0]}' and {len(places) - 1} more stay apart: {reason}"


def _picker(patterns: list[str]) -> Any:
    """The places that patterns pick; '*' may pick none."""

    def picked(places: list[str]) -> set[str]:
        return {one for pattern in patterns for one in (places if pattern == "*" else matching(places, pattern, what="fuse"))}

    return picked
