"""Removes the channels, heads and features that matter least; the output is as if they were 0."""

from __future__ import annotations

import copy
from collections.abc import Iterable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal, Self

from pydantic import Field, model_validator

from ..errors import StepError
from ..model.weights import parameter_count
from ..pruning.groups import CutProblem, couple, cut_again, cut_and_remember
from ..pruning.groups.cut_notes import cut_notes, first_reason, why_not_cut
from ..pruning.groups.proof import Proven, Removals, prove
from ..pruning.groups.scores import Scores, default_importance, unit_scores
from ..pruning.groups.widths import LEAST_KEPT, kept_units, least, shares_by_score
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
Shares = dict[int, float | None]  # by a group's index: the share to keep, if it is named
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
        model, before = draft.module, parameter_count(draft.module)
        structure = couple(model, draft.work.inputs)
        problem = CutProblem(draft.work, model, structure, draft.threads, draft.should_stop)
        shares, ungrouped = self._shares(problem)
        importance = self.importance or default_importance(draft.work)
        with running(model):
            scores, score_notes = unit_scores(problem, importance, self.seed)
        to_remove, proven, target = self._proven(problem, shares, scores)
        if not proven.accepted:
            raise StepError(
                f"no channel of it can be removed; {first_reason(problem, proven, list(shares))}."
            )
        removed = {unit for index in proven.accepted for unit in to_remove[index]}
        repairs = repairs_for(self.repair, draft.work)
        original = copy.deepcopy(model) if repairs else model
        draft.remembered = cut_and_remember(model, structure, removed, proven.left_alone)
        draft.notes += cut_notes(problem, to_remove, proven, importance, before) + score_notes
        draft.notes += ungrouped
        if repairs:
            lost = shrunk_layers(original, model, structure, removed)
            draft.notes += refit_model(draft.work, original, model, lost, repairs)
        if target is not None:
            draft.notes += target_notes(problem, removed, target)

    def rebuild(self, draft: Draft, remembered: dict[str, Any]) -> None:
        """Remove the same channels from the same weights."""
        cut_again(draft.module, remembered)

    def _shares(self, problem: CutProblem) -> tuple[Shares, list[str]]:
        """For each group that can lose units its share set by name, None if no pattern names it;
        and why named layers that are in no group stay whole. Raises if no named layer can be cut.
        """
        groups, protected = problem.groups, self._picked(problem, *self.protect)
        shares: Shares = {
            index: None
            for index, group in enumerate(groups)
            if group.pinned is None and not protected & set(group.layers)
        }
        grouped = {layer for group in groups for layer in group.layers}
        barred: list[str] = []
        ungrouped: list[str] = []
        for pattern, ratio in self.layers.items():
            picked = self._picked(problem, pattern)
            chosen = [index for index in shares if picked & set(groups[index].layers)]
            if not chosen:
                barred.append(why_not_cut(problem, sorted(picked), protected))
                ungrouped += [] if picked & grouped else barred[-1:]
            shares |= dict.fromkeys(chosen, 1 - ratio)
        # one threshold over all layers also names those of which none can go
        if barred and all(share is None for share in shares.values()):
            raise StepError(barred[0])
        return shares, ungrouped

    def _proven(
        self, problem: CutProblem, shares: Shares, scores: list[Scores]
    ) -> tuple[Removals, Proven, ChosenWidths | None]:
        """The units to remove of each group, those that passed the check, and the target; units of
        other groups replace refused ones on the way to the target.
        """
        refused: dict[int, str] = {}
        while True:
            kept, target = self._kept(problem, shares, scores)
            to_remove = {
                index: least(problem.structure, index, scores[index], units)
                for index, units in kept.items()
            }
            proven = prove(problem, to_remove)
            is_done = target is None or not proven.refused
            refused |= proven.refused
            if is_done:
                proven.refused = refused
                return to_remove, proven, target
            shares = {index: share for index, share in shares.items() if index not in refused}

    def _kept(
        self, problem: CutProblem, shares: Shares, scores: list[Scores]
    ) -> tuple[dict[int, int], ChosenWidths | None]:
        """How many units each group keeps, if it loses some; only named layers lose any."""
        groups, free = problem.groups, [index for index, share in shares.items() if share is None]
        kept = {
            index: kept_units(groups[index], share, 1)
            for index, share in shares.items()
            if share is not None
        }
        target = None
        if self.to is not None:
            ((goal, share),) = self.to.items()
            fewest = self._fewest(problem, free, LEAST_KEPT)
            options = WidthOptions(kept, fewest, self.round_to)
            target = choose_widths(problem, scores, Target(goal, share), options)
            kept = dict(enumerate(target.cost.kept))
        elif self.ratio is not None:
            common = dict.fromkeys(free, 1 - self.ratio)
            if self.scope == "global":
                common = shares_by_score(problem.structure, free, scores, self.ratio)
            fewest = self._fewest(problem, free, 0.0)
            for index in free:
                width = kept_units(groups[index], common[index], self.round_to or ROUND_TO)
                kept[index] = max(width, min(fewest[index], groups[index].width))
        return {
            index: units for index, units in kept.items() if units < groups[index].width
        }, target

    def _fewest(
        self, problem: CutProblem, groups: Iterable[int], least_share: float
    ) -> dict[int, int]:
        """The fewest units of each group that have to be kept."""
        limits = dict.fromkeys(groups, least_share)
        for pattern, share in self.limits.items():
            picked = self._picked(problem, pattern)
            limits |= {
                index: share for index in limits if picked & set(problem.groups[index].layers)
            }
        return fewest_units(problem, limits)

    def _picked(self, problem: CutProblem, *patterns: str) -> set[str]:
        return set(layers_matching(problem.model, list(patterns), what="prune"))
