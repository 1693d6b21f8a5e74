"""Removes the channels, heads and features that matter least; the output is that of the model with
zeros in their place.
"""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator
from torch import nn

from ..errors import StepError
from ..pruning.groups import Structure, couple, cut_again, cut_and_remember
from ..pruning.groups.cut_notes import cut_notes, first_reason, weight_count, why_not_cut
from ..pruning.groups.proof import Proven, Removals, prove
from ..pruning.groups.scores import Scores, UnitScores, default_importance, unit_scores
from ..pruning.groups.select import LEAST_KEPT, kept_units, least, shares_by_score
from ..pruning.refit import Repair, refit_model, repairs_for, shrunk_layers
from ..pruning.targets import (
    ChosenWidths,
    Goal,
    Target,
    WidthOptions,
    choose_widths,
    fewest_units,
    target_notes,
)
from ..records import readable_share
from ..saliency.channels import CHANNEL_ESTIMATORS
from ..workload import running
from .step import Draft, Step, by_pattern, layers_matching

if TYPE_CHECKING:
    Importance = str
else:
    Importance = Literal[tuple(CHANNEL_ESTIMATORS)]
Ratio = Annotated[float, Field(gt=0, lt=1)]
KeptShare = Annotated[float, Field(gt=0, le=1)]
ROUND_TO = 8


class Prune(Step):
    """Make layers narrower: from each group of coupled channels, remove those that matter least.

    Every cut is compared with the model with zeros in place of what is cut; a cut that differs is
    not made, and the notes say why. Then the remaining layers are refit to reproduce the output
    before the cut, if there is data for that; `repair: []` skips this.
    """

    kind: ClassVar[str] = "prune"
    main_option: ClassVar[str] = "ratio"
    ratio: Ratio | None = Field(
        default=None, description="the share of channels to remove where `layers` says no other"
    )
    to: dict[Goal, Ratio] | None = Field(
        default=None,
        min_length=1,
        max_length=1,
        description="instead of a ratio, the share of the original's parameters, flops or latency "
        "that is to be left, such as latency: 0.5",
    )
    importance: Importance | None = Field(
        default=None,
        description="the method of lab.importance by whose values channels are cut; taylor where "
        "there is a loss and train data, else magnitude",
    )
    layers: dict[str, Ratio] = Field(
        default={}, description="pattern of dotted paths → another ratio; later patterns win"
    )
    protect: list[str] = Field(default=[], description="patterns of layers that keep every channel")
    limits: dict[str, KeptShare] = Field(
        default={},
        description="pattern of dotted paths → the least share to keep of the original's channels; "
        "later patterns win",
    )
    scope: Literal["uniform", "global"] = Field(
        default="uniform",
        description="how a ratio is meant: the same share of each group, or the least of all",
    )
    round_to: int | None = Field(
        default=None,
        ge=1,
        description="widths are multiples of this where they can be, and a named layer keeps just "
        "its share; by itself 8, a half of it or less where a target needs that, and for latency "
        "the widths that were measured",
    )
    seed: int = Field(
        default=0,
        ge=0,
        description="of the batches that importance is estimated on, and of random scores; as in "
        "lab.importance",
    )
    repair: list[Repair] | None = Field(
        default=None,
        description="the refits after the cut, least-squares or batch-norm; both where there is "
        "train data",
    )

    @model_validator(mode="after")
    def _check_options(self) -> Prune:
        if self.ratio is None and not self.layers and self.to is None:
            raise ValueError("give a ratio, a target with `to`, or layers")
        if self.ratio is not None and self.to is not None:
            raise ValueError("give a ratio or a target with `to`, not both")
        if self.to is not None and self.scope != "uniform":
            raise ValueError(
                "scope is for a ratio; a target chooses by importance and by what is saved"
            )
        return self

    @property
    def label(self) -> str:
        how = "" if self.importance is None else f" by {self.importance}"
        named = [f"{pattern}: {readable_share(ratio)}" for pattern, ratio in self.layers.items()]
        targets = [
            f"to {readable_share(share)} of the {goal}" for goal, share in (self.to or {}).items()
        ]
        return (
            "prune "
            + ", ".join([*([readable_share(self.ratio)] if self.ratio else []), *targets, *named])
            + how
        )

    def joined(self, newer: Self) -> Self | None:
        """One step with the newer goal and ratios; a repeated pattern moves to the end."""
        has_goal = newer.ratio is not None or newer.to is not None
        goal = {"ratio": newer.ratio, "to": newer.to, "scope": newer.scope} if has_goal else {}
        return self.updated(newer, layers=by_pattern(self.layers, newer.layers), **goal)

    def apply(self, draft: Draft) -> None:
        """Couple channels into groups, choose, check against zeros, cut and refit."""
        before = weight_count(draft.module)
        structure = couple(draft.module, draft.work.inputs)
        shares = self._shares(draft.module, structure)
        with running(draft.module):
            scores = self._scores(draft, structure)
        to_remove, proven, target = self._proven(draft, structure, shares, scores.groups)
        if not proven.accepted:
            raise StepError(
                f"no channel of it can be removed; {first_reason(structure, proven, list(shares))}."
            )
        removed = {unit for index in proven.accepted for unit in to_remove[index]}
        repairs = repairs_for(self.repair, draft.work)
        original = copy.deepcopy(draft.module) if repairs else draft.module
        draft.remembered = cut_and_remember(draft.module, structure, removed, proven.left_alone)
        after = weight_count(draft.module)
        importance = self.importance or default_importance(draft.work)
        draft.notes += (
            cut_notes(structure, to_remove, proven, importance, before, after) + scores.notes
        )
        if repairs:
            lost = shrunk_layers(original, draft.module, structure, removed)
            draft.notes += refit_model(draft.work, original, draft.module, lost, repairs)
        if target is not None:
            draft.notes += target_notes(
                draft.work, draft.module, structure, removed, target, count=draft.threads
            )

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Remove the same channels from the same weights."""
        cut_again(draft.module, remembered)

    def _shares(self, model: nn.Module, structure: Structure) -> dict[int, float | None]:
        """For each group that can lose units its share set by name; None if no pattern names it."""
        protected = set(layers_matching(model, self.protect, what="prune"))
        shares: dict[int, float | None] = {
            index: None
            for index, group in enumerate(structure.groups)
            if group.pinned is None and not protected & set(group.layers)
        }
        for pattern, ratio in self.layers.items():
            picked = set(layers_matching(model, [pattern], what="prune"))
            chosen = [index for index in shares if picked & set(structure.groups[index].layers)]
            if not chosen:
                raise StepError(why_not_cut(model, structure, sorted(picked), protected))
            shares |= dict.fromkeys(chosen, 1 - ratio)
        return shares

    def _scores(self, draft: Draft, structure: Structure) -> UnitScores:
        method = self.importance or default_importance(draft.work)
        return unit_scores(
            draft.work, draft.module, structure, method, self.seed, draft.should_stop
        )

    def _proven(
        self,
        draft: Draft,
        structure: Structure,
        shares: dict[int, float | None],
        scores: list[Scores],
    ) -> tuple[Removals, Proven, ChosenWidths | None]:
        """The units to remove of each group, those that passed the check, and the target; units of
        other groups replace refused ones on the way to the target.
        """
        refused: dict[int, str] = {}
        while True:
            kept, target = self._kept(draft, structure, shares, scores)
            to_remove = {
                index: least(structure, index, scores[index], units)
                for index, units in kept.items()
            }
            proven = prove(draft.module, draft.work.inputs, structure, to_remove)
            is_done = target is None or not proven.refused
            refused |= proven.refused
            if is_done:
                proven.refused = refused
                return to_remove, proven, target
            shares = {index: share for index, share in shares.items() if index not in refused}

    def _kept(
        self,
        draft: Draft,
        structure: Structure,
        shares: dict[int, float | None],
        scores: list[Scores],
    ) -> tuple[dict[int, int], ChosenWidths | None]:
        """How many units each group keeps, if it loses some; only named layers lose any."""
        groups, free = structure.groups, [index for index, share in shares.items() if share is None]
        kept = {
            index: kept_units(groups[index], share, 1)
            for index, share in shares.items()
            if share is not None
        }
        target = None
        if self.to is not None:
            ((goal, share),) = self.to.items()
            limits = self._limits(draft.module, structure, free, LEAST_KEPT)
            options = WidthOptions(
                kept, fewest_units(draft.work, draft.module, structure, limits), self.round_to
            )
            target = choose_widths(
                draft.work,
                draft.module,
                structure,
                scores,
                Target(goal, share),
                options,
                count=draft.threads,
            )
            kept = target.kept
        elif self.ratio is not None:
            common = self._common(structure, free, scores)
            fewest = fewest_units(
                draft.work,
                draft.module,
                structure,
                self._limits(draft.module, structure, free, 0.0),
            )
            for index in free:
                width = kept_units(groups[index], common[index], self.round_to or ROUND_TO)
                kept[index] = max(width, min(fewest[index], groups[index].width))
        return {
            index: units for index, units in kept.items() if units < groups[index].width
        }, target

    def _limits(
        self, model: nn.Module, structure: Structure, groups: Iterable[int], least_share: float
    ) -> dict[int, float]:
        """The least share of each group that has to be kept."""
        limits = dict.fromkeys(groups, least_share)
        for pattern, share in self.limits.items():
            picked = set(layers_matching(model, [pattern], what="prune"))
            limits |= {
                index: share for index in limits if picked & set(structure.groups[index].layers)
            }
        return limits

    def _common(
        self, structure: Structure, groups: list[int], scores: list[Scores]
    ) -> dict[int, float]:
        ratio = self.ratio or 0.0
        return (
            shares_by_score(structure, groups, scores, ratio)
            if self.scope == "global"
            else dict.fromkeys(groups, 1 - ratio)
        )
