"""Choose widths that leave a share of parameters, FLOPs or latency, by importance lost per cost."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

from ...errors import StepError
from ...measure import Candidate, ratio_of_rounds, rounds_in_turn
from ...model.weights import parameter_count
from ...quantization import QuantizedLayer
from ...records import ChannelGroup, counted
from ...records.text import three_figures
from ...workload import running
from ..groups import CutProblem, couple
from ..groups.costs import Cost, flops, parameters, spent_flops
from ..groups.scores import Scores
from ..groups.widths import (
    AllowedWidths,
    allowed_widths,
    loss_by_kept,
    solve_widths,
    take_narrowest,
)
from .latency import families_of, latency_cost
from .layer_families import MOST_WIDTHS, spaced
from .measure import staircases
from .whole_model import call_of, whole_latency

Goal = Literal["parameters", "flops", "latency"]
STEPS = (8, 4, 2, 1)  # widths are multiples of the first step that can reach the target
SECONDS = 60.0  # for staircases that are not in the cache
QUICK_MS = 300.0  # a run that takes longer is not repeated for a note
ROUNDS, TIMING_SECONDS = 12, 4.0

Widths = dict[int, int]  # by a group's index: how many units stay


@dataclass(frozen=True)
class Target:
    """The share of the original's cost that is to be left."""

    goal: Goal
    share: float


@dataclass(frozen=True)
class WidthOptions:
    """Groups of a fixed width, the fewest units of groups that may be narrowed, and the step."""

    fixed: Widths
    fewest: Widths
    round_to: int | None


@dataclass(frozen=True)
class ChosenWidths:
    """A target, the cost at the widths that are chosen for it, the original's cost, and notes on
    how they were measured.
    """

    target: Target
    cost: Cost
    original: float
    notes: tuple[str, ...] = ()

    @property
    def share(self) -> float:
        """The predicted share of the original's cost that is left."""
        return self.cost.total / self.original


def choose_widths(
    problem: CutProblem, scores: list[Scores], target: Target, options: WidthOptions
) -> ChosenWidths:
    """The widths that lose least importance; raises for a target out of reach."""
    if any(isinstance(part, QuantizedLayer) for part in problem.model.modules()):
        raise StepError(
            "quantized layers are not counted, so no target can be met; put 'prune' before "
            "'precision'."
        )
    choices = _width_choices(problem, target, options)
    chosen = _at_full_width(problem, target, choices[-1])
    if not chosen.original:
        raise StepError(
            f"{target.goal}: the original has none that are counted, so there is no share of them; "
            "choose another target."
        )
    if chosen.share <= target.share:
        raise StepError(
            f"{target.goal}: {chosen.share:.3g} of the original's is left already, and "
            f"{target.share:g} was asked for; ask for less."
        )
    for group, kept in options.fixed.items():
        chosen.cost.take(group, kept)
    if chosen.share <= target.share:
        return chosen
    losses = {
        group: loss_by_kept(scores[group], len(problem.groups[group].layers))
        for group in options.fewest
    }
    limit = target.share * chosen.original
    for allowed in choices:
        narrowest = copy.deepcopy(chosen.cost)
        take_narrowest(narrowest, allowed)
        if narrowest.total <= limit:
            solve_widths(chosen.cost, limit, losses, allowed)
            return chosen
    reachable = ceil(1e4 * narrowest.total / chosen.original) / 1e4  # rounded up, to be accepted
    raise StepError(
        f"{target.goal}: {target.share:g} of the original's cannot be reached: the smallest "
        f"reachable share is {reachable:g}; ask for that or more, or give `limits`, `protect` and "
        "`round_to` more room."
    )


def _width_choices(
    problem: CutProblem, target: Target, options: WidthOptions
) -> list[AllowedWidths]:
    """The widths that groups may have, for each step that is tried."""
    groups = problem.groups
    if target.goal == "latency" and options.round_to is None:
        return [
            {
                index: _measured_widths(groups[index], fewest)
                for index, fewest in options.fewest.items()
            }
        ]
    steps = STEPS if options.round_to is None else (options.round_to,)
    return [
        {
            index: allowed_widths(groups[index], step, fewest)
            for index, fewest in options.fewest.items()
        }
        for step in steps
    ]


def _measured_widths(group: ChannelGroup, fewest: int) -> tuple[int, ...]:
    """The widths at which staircases are measured, in units."""
    units = {ceil(channels / group.unit) for channels in spaced(group.channels, MOST_WIDTHS)}
    return tuple(kept for kept in sorted(units, reverse=True) if fewest <= kept < group.width)


def _at_full_width(problem: CutProblem, target: Target, allowed: AllowedWidths) -> ChosenWidths:
    work, structure = problem.work, problem.structure
    if target.goal == "parameters":
        cost = parameters(problem.model, structure)
        return ChosenWidths(target, cost, parameter_count(work.model))
    if target.goal == "flops":
        original = spent_flops(couple(work.model, work.inputs))
        return ChosenWidths(target, flops(structure), original)
    narrow = [group.width for group in structure.groups]
    for index, lower in allowed.items():
        narrow[index] = lower[-1] if lower else narrow[index]
    timed = staircases(
        families_of(structure),
        count=problem.threads,
        seconds=SECONDS,
        should_stop=problem.should_stop,
    )
    whole = whole_latency(problem, narrow)
    cost, layers_ms = latency_cost(structure, timed, whole, narrow)
    note = (
        f"latency: {len(timed)} kinds of layers were timed by width and take "
        f"{three_figures(layers_ms)} of {three_figures(whole.ms)} ms; the rest goes with the "
        "values that they make, estimated from the whole"
        + ("" if whole.narrow_ms is None else ", wide and narrow")
    )
    return ChosenWidths(target, cost, whole.original_ms, (note,))


def fewest_units(problem: CutProblem, shares: Mapping[int, float]) -> Widths:
    """The fewest units to keep of groups, from shares of their widths in the original model."""
    original = dict(problem.work.model.named_parameters())
    current = dict(problem.model.named_parameters())
    fewest = {}
    for index, share in shares.items():
        group = problem.groups[index]
        first = next(member for member in group.members if member.kind == "rows")
        original_size = (
            original[first.weight].shape[first.dimension] if first.weight in original else None
        )
        widened = (
            1.0
            if original_size is None
            else original_size / current[first.weight].shape[first.dimension]
        )
        fewest[index] = max(1, ceil(share * widened * group.width - 1e-9))
    return fewest


def target_notes(problem: CutProblem, removed: set[int], chosen: ChosenWidths) -> list[str]:
    """The predicted shares of the original's cost beside the achieved ones, where they are known;
    the problem's model has been cut since its groups were found.
    """
    work, model, structure = problem.work, problem.model, problem.structure
    target, predicted = chosen.target, parameters(model, structure)
    for index, units in enumerate(structure.units):
        predicted.take(index, len(set(units) - removed))
    of_parameters = parameter_count(work.model)
    of_flops = spent_flops(couple(work.model, work.inputs))
    spent = spent_flops(structure, structure.kept(removed)), spent_flops(couple(model, work.inputs))
    shares = {
        "parameters": (predicted.total / of_parameters, parameter_count(model) / of_parameters)
    }
    if of_flops:
        shares["FLOPs"] = spent[0] / of_flops, spent[1] / of_flops
    notes = [
        f"{name}: {before:.1%} of the original's predicted, {after:.1%} left"
        for name, (before, after) in shares.items()
    ]
    if target.goal == "latency":
        notes += [*chosen.notes, _latency(problem, chosen)]
    return [f"at most {target.share:.1%} of the original's {target.goal} was asked for", *notes]


def _latency(problem: CutProblem, chosen: ChosenWidths) -> str:
    work, model = problem.work, problem.model
    note = f"latency: {chosen.share:.1%} of the original's predicted"
    if chosen.original > QUICK_MS:
        return f"{note}; a run takes {chosen.original:,.0f} ms and was not repeated to see"
    with running(work.model), running(model):
        candidates = [
            Candidate(name, call_of(work, module), problem.threads, work.device)
            for name, module in (("was", work.model), ("is", model))
        ]
        for samples in rounds_in_turn(candidates, rounds=ROUNDS, seconds=TIMING_SECONDS):
            last = samples
    speedup, (low, high) = ratio_of_rounds(last["was"], last["is"])
    return (
        f"{note}, {1 / speedup:.1%} ({1 / high:.1%} to {1 / low:.1%}) measured in turn, "
        f"{counted(problem.threads, 'thread')}"
    )
