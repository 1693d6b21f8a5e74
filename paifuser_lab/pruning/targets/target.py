"""The widths with which so much of the original's parameters, FLOPs or latency is left, chosen by
importance for what it costs.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass
from math import ceil
from typing import Literal

from torch import nn

from ...errors import StepError
from ...quantization import QuantizedLayer
from ...workload import Workload
from ..groups import Structure, couple
from ..groups.costs import Cost, flops, parameters, spent_flops
from ..groups.scores import Scores
from ..groups.select import allowed_widths
from ..groups.solve import AllowedWidths, loss_by_kept, solve_widths, take_narrowest
from .latency import families_of, latency_cost
from .layer_families import MOST_WIDTHS, spaced
from .measure import staircases
from .whole_model import whole_latency

Goal = Literal["parameters", "flops", "latency"]
STEPS = (8, 4, 2, 1)  # what widths are multiples of: the first with which the target can be reached
SECONDS = 60.0  # for staircases that are not known yet

Kept = dict[int, int]  # of a group, by number: how many units stay


@dataclass(frozen=True)
class Target:
    """How much of what is to be left, of the original's."""

    goal: Goal
    share: float


@dataclass(frozen=True)
class WidthOptions:
    """What may be done for it: groups whose width is given, those that may be narrowed with the
    fewest units of each, and the step.
    """

    given: Kept
    fewest: Kept
    round_to: int | None


@dataclass(frozen=True)
class ChosenWidths:
    """The widths, the share that they are predicted to leave, and how that was found."""

    target: Target
    kept: Kept
    share: float
    original: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Budget:
    """A cost, what it was for the original, and how it was found."""

    cost: Cost
    original: float
    notes: tuple[str, ...] = ()


def choose_widths(
    work: Workload,
    model: nn.Module,
    structure: Structure,
    scores: list[Scores],
    target: Target,
    ways: WidthOptions,
    *,
    count: int,
) -> ChosenWidths:
    """The widths that lose least importance; a target out of reach is refused with the smallest
    share that can be reached.
    """
    if any(isinstance(part, QuantizedLayer) for part in model.modules()):
        raise StepError(
            "quantized layers are not counted, so no target can be kept; prune before 'precision'."
        )
    tried = _width_choices(structure, target, ways)
    budget = _budget(work, model, structure, target, tried[-1], count)
    if not budget.original:
        raise StepError(
            f"{target.goal}: the original has none that are counted, so there is no share of them; "
            "choose another target."
        )
    for group, kept in ways.given.items():
        budget.cost.take(group, kept)
    _check_is_less(budget, target)
    losses = {
        group: loss_by_kept(scores[group], len(structure.groups[group].layers))
        for group in ways.fewest
    }
    most = target.share * budget.original
    for allowed in tried:
        least = copy.deepcopy(budget.cost)
        take_narrowest(least, allowed)
        if least.total <= most:
            solve_widths(budget.cost, most, losses, allowed)
            share = budget.cost.total / budget.original
            return ChosenWidths(
                target, _narrowed(structure, budget.cost), share, budget.original, budget.notes
            )
    raise StepError(
        f"{target.goal}: {target.share:g} of the original's cannot be reached: the smallest "
        "reachable "
        "share is "
        f"{_ceiled(least.total / budget.original)}; ask for that or more, or give `limits`, "
        "`protect` and `round_to` more room."
    )


def _narrowed(structure: Structure, cost: Cost) -> Kept:
    return {
        group: kept for group, kept in enumerate(cost.kept) if kept < structure.groups[group].width
    }


def _check_is_less(budget: _Budget, target: Target) -> None:
    share = budget.cost.total / budget.original
    if share <= target.share:
        raise StepError(
            f"{target.goal}: {share:.3g} of the original's is left already, and {target.share:g} "
            "was asked for; ask for less."
        )


def _width_choices(structure: Structure, target: Target, ways: WidthOptions) -> list[AllowedWidths]:
    """The widths that groups may have, for each step that is tried."""
    groups = structure.groups
    if target.goal == "latency" and ways.round_to is None:
        return [
            {
                index: _measured_widths(structure, index, fewest)
                for index, fewest in ways.fewest.items()
            }
        ]
    steps = STEPS if ways.round_to is None else (ways.round_to,)
    return [
        {
            index: allowed_widths(groups[index], step, fewest)
            for index, fewest in ways.fewest.items()
        }
        for step in steps
    ]


def _measured_widths(structure: Structure, index: int, fewest: int) -> tuple[int, ...]:
    """The widths at which staircases are measured, as units."""
    group = structure.groups[index]
    units = {ceil(channels / group.unit) for channels in spaced(group.channels, MOST_WIDTHS)}
    return tuple(kept for kept in sorted(units, reverse=True) if fewest <= kept < group.width)


def _budget(
    work: Workload,
    model: nn.Module,
    structure: Structure,
    target: Target,
    allowed: AllowedWidths,
    count: int,
) -> _Budget:
    if target.goal == "parameters":
        return _Budget(
            parameters(model, structure), sum(weight.numel() for weight in work.model.parameters())
        )
    if target.goal == "flops":
        return _Budget(flops(structure), original_flops(work))
    narrow = [group.width for group in structure.groups]
    for index, lower in allowed.items():
        narrow[index] = lower[-1] if lower else narrow[index]
    found = staircases(families_of(structure), count=count, seconds=SECONDS)
    whole = whole_latency(work, model, structure, narrow, count=count)
    made = latency_cost(structure, found, whole, narrow)
    note = (
        f"latency: {len(found)} kinds of layers were timed by width and take {made.layers_ms:.3g} "
        f"of {whole.ms:.3g} ms; the rest "
        "goes with the values that they make, estimated from the whole"
        + ("" if whole.narrow_ms is None else ", wide and narrow")
    )
    return _Budget(made.cost, whole.original_ms, (note,))


def original_flops(work: Workload) -> int:
    """The operations of the workload's own model."""
    return spent_flops(couple(work.model, work.inputs))


def fewest_units(
    work: Workload, model: nn.Module, structure: Structure, shares: Mapping[int, float]
) -> Kept:
    """The least that is to be kept of groups, as shares of the widths that they had in the
    original.
    """
    original, now = dict(work.model.named_parameters()), dict(model.named_parameters())
    found = {}
    for index, share in shares.items():
        group = structure.groups[index]
        first = next(member for member in group.members if member.kind == "rows")
        was = original[first.weight].shape[first.dimension] if first.weight in original else None
        widened = 1.0 if was is None else was / now[first.weight].shape[first.dimension]
        found[index] = max(1, ceil(share * widened * group.width - 1e-9))
    return found


def _ceiled(share: float) -> str:
    """Rounded up, so that asking for it succeeds."""
    return f"{ceil(share * 1e4) / 1e4:g}"
