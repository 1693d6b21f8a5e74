"""Remove channels, heads and features that matter least; what is left answers as if they were zero."""

from __future__ import annotations

from collections import defaultdict
from typing import Annotated, ClassVar, Literal, Self

import torch
from pydantic import Field, model_validator
from torch import nn

from ..coupling import Structure, couple, cut
from ..coupling.choosing import kept_units, least, shares_by_score
from ..coupling.proving import Proven, Wanted, prove
from ..coupling.scores import Importance, Scores, default_importance, unit_scores
from ..errors import StepError
from ..locate import describe
from ..records import ChannelGroup, counted
from ..workload import running
from .step import Draft, Step, matching

Ratio = Annotated[float, Field(gt=0, lt=1)]
MOST_NOTES = 12


class Prune(Step):
    """Make layers narrower: of each group of channels that go together, those that matter least go.

    Every cut is compared with the model with zeros in place of what was cut; one that differs is left out, and the notes say why.
    """

    kind: ClassVar[str] = "prune"
    ratio: Ratio | None = Field(default=None, description="the share of channels to remove where `layers` says no other")
    importance: Importance | None = Field(default=None, description="taylor where there is a loss and data, else magnitude")
    layers: dict[str, Ratio] = Field(default={}, description="pattern of dotted paths → another ratio; later patterns win")
    protect: list[str] = Field(default=[], description="patterns of layers that keep every channel")
    scope: Literal["uniform", "global"] = Field(
        default="uniform", description="the same share of each group, or the least of all"
    )
    round_to: int = Field(
        default=8,
        ge=1,
        description="what `ratio` leaves is a multiple of this where it can be; a named layer keeps just its share",
    )
    seed: int = Field(default=0, ge=0, description="what random importance draws from")

    @model_validator(mode="after")
    def _says_something(self) -> Prune:
        if self.ratio is None and not self.layers:
            raise ValueError("give a ratio or layers")
        return self

    @property
    def label(self) -> str:
        how = "" if self.importance is None else f" by {self.importance}"
        named = [f"{pattern}: {ratio:.0%}" for pattern, ratio in self.layers.items()]
        return "prune " + ", ".join([*([f"{self.ratio:.0%}"] if self.ratio else []), *named]) + how

    def joined(self, newer: Self) -> Self | None:
        """The newer ratio, and the newer one for each pattern; one that comes again counts as the last."""
        kept = {pattern: ratio for pattern, ratio in self.layers.items() if pattern not in newer.layers}
        changed = newer.model_dump(include=newer.model_fields_set - {"why"})
        return self.model_copy(update=changed | {"layers": {**kept, **newer.layers}, "why": None})

    def apply(self, draft: Draft) -> None:
        """Find what goes together, choose, prove, cut."""
        before = _weight_count(draft.module)
        structure = couple(draft.module, draft.work.inputs)
        shares = self._shares(draft.module, structure)
        wanted = self._wanted(draft, structure, shares)
        proven = prove(draft.module, draft.work.inputs, structure, wanted)
        if not proven.accepted:
            raise StepError(f"no channel of it can be removed; {_first_reason(structure, proven, list(shares))}.")
        removed = {unit for index in proven.accepted for unit in wanted[index]}
        cut(draft.module, structure, removed, proven.left_alone)
        draft.notes += _told(structure, wanted, proven, before, _weight_count(draft.module))

    def _shares(self, model: nn.Module, structure: Structure) -> dict[int, float | None]:
        """For each group that can lose units the share that it was given by name; None where it was not."""
        names = [name for name, _ in model.named_modules()]
        protected = {layer for pattern in self.protect for layer in matching(names, pattern, what="prune")}
        shares: dict[int, float | None] = {
            index: None
            for index, group in enumerate(structure.groups)
            if group.pinned is None and not protected & set(group.layers)
        }
        for pattern, ratio in self.layers.items():
            picked = set(matching(names, pattern, what="prune"))
            chosen = [index for index in shares if picked & set(structure.groups[index].layers)]
            if not chosen:
                raise StepError(_cannot(model, structure, sorted(picked), protected))
            shares |= dict.fromkeys(chosen, 1 - ratio)
        return shares

    def _wanted(self, draft: Draft, structure: Structure, shares: dict[int, float | None]) -> Wanted:
        """The units to remove of each group; where only layers are named, the others keep theirs."""
        importance = self.importance or default_importance(draft.work)
        with running(draft.module):
            scores = unit_scores(draft.work, draft.module, structure, importance, self.seed)
        free = [index for index, share in shares.items() if share is None]
        common = self._common(structure, free, scores) if self.ratio is not None else dict.fromkeys(free, 1.0)
        wanted: Wanted = {}
        for index, share in shares.items():
            group = structure.groups[index]
            kept = kept_units(group, common[index], self.round_to) if share is None else kept_units(group, share, 1)
            if kept < structure.groups[index].width:
                wanted[index] = least(structure, index, scores[index], kept)
        return wanted

    def _common(self, structure: Structure, groups: list[int], scores: list[Scores]) -> dict[int, float]:
        ratio = self.ratio or 0.0
        return shares_by_score(structure, groups, scores, ratio) if self.scope == "global" else dict.fromkeys(groups, 1 - ratio)


def _cannot(model: nn.Module, structure: Structure, picked: list[str], protected: set[str]) -> str:
    """Why none of the chosen layers can lose a channel."""
    layer = picked[0]
    for group in structure.groups:
        if found := set(group.layers) & set(picked):
            layer, reason = sorted(found)[0], group.pinned or ("it is protected" if found & protected else "")
            return f"{describe(model, layer)} cannot lose a channel: {reason or 'it goes with a protected one'}."
    return f"{describe(model, layer)} cannot lose a channel: it makes none."


def _first_reason(structure: Structure, proven: Proven, free: list[int]) -> str:
    for index, reason in proven.refused.items():
        return f"'{structure.groups[index].name}': {reason}"
    if not structure.groups:
        return "no layer of it has weights in floating point"
    group = structure.groups[free[0] if free else 0]
    if free:
        return f"'{group.name}' has {counted(group.width, 'unit')}, of which that share is none; ask for more"
    return f"'{group.name}': {group.pinned or 'it is protected'}"


def _told(structure: Structure, wanted: Wanted, proven: Proven, before: int, after: int) -> list[str]:
    """What was removed, and what stays for what reason."""
    groups = structure.groups
    gone = sum(len(wanted[index]) * groups[index].unit for index in proven.accepted)
    of = sum(group.channels for group in groups if group.pinned is None)
    went = f"removed {gone} of {counted(of, 'channel')} that can go, in {counted(len(proven.accepted), 'group')}"
    notes = [f"{went}; {after:,} of {before:,} weights are left"]
    reasons: dict[str, list[ChannelGroup]] = defaultdict(list)
    for index, reason in proven.refused.items():
        reasons[reason].append(groups[index])
    for group in groups:
        if group.pinned:
            reasons[group.pinned].append(group)
    stays = [f"{_named(ones)}: {reason}" for reason, ones in reasons.items()]
    return notes + [f"stays whole: {one}" for one in stays[:MOST_NOTES]]


def _named(groups: list[ChannelGroup]) -> str:
    names = list(dict.fromkeys(group.name for group in groups))
    return f"'{names[0]}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def _weight_count(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters() if torch.is_tensor(weight))
