"""Choose widths that leave a share of the original's parameters, FLOPs or latency, by importance
lost per cost saved.
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
STEPS = (8, 4, 2, 1)  # widths are multiples of the first step that can reach the target
SECONDS = 60.0  # for staircases that are not in the cache

Widths = dict[int, int]  # by a group's index: how many units stay


@dataclass(frozen=True)
class Target:
    """The share of the original's cost that is to be left."""

    goal: Goal
    share: float


@dataclass(frozen=True)
class WidthOptions:
    """Groups whose width is fixed, groups that may be narrowed with their fewest units, and the
    step.
    """

    fixed: Widths
    fewest: Widths
    round_to: int | None


@dataclass(frozen=True)
class ChosenWidths:
    """The widths, the predicted share that they leave, and notes on the prediction."""

    target: Target
    kept: Widths
    share: float
    original: float
    notes: tuple[str, ...] = ()


@dataclass(frozen=True)
class _Budget:
    """A cost, the original's cost, and notes on how it was measured."""

    cost: Cost
    original: float
    notes: tuple[str, ...] = ()


def choose_widths(
    work: Workload,
    model: nn.Module,
    structure: Structure,
    scores: list[Scores],
    target: Target,
    options: WidthOptions,
    *,
    count: int,
) -> ChosenWidths:
    """The widths that lose least importance; raises for a target out of reach, with the smallest
    share that can be reached.
    """
    if any(isinstance(part, QuantizedLayer) for part in model.modules()):
        raise StepError(
            "quantized layers are not counted, so no target can be met; put 'prune' before "
            "'precision'."
        )
    choices = _width_choices(structure, target, options)
    budget = _budget(work, model, structure, target, choices[-1], count)
    if not budget.original:
        raise StepError(
            f"{target.goal}: the original has none that are counted, so there is no share of them; "
            "choose another target."
        )
    for group, kept in options.fixed.items():
        budget.cost.take(group, kept)
    _check_is_less(budget, target)
    losses = {
        group: loss_by_kept(scores[group], len(structure.groups[group].layers))
        for group in options.fewest
    }
    limit = target.share * budget.original
    for allowed in choices:
        narrowest = copy.deepcopy(budget.cost)
        take_narrowest(narrowest, allowed)
        if narrowest.total <= limit:
            solve_widths(budget.cost, limit, losses, allowed)
            share = budget.cost.total / budget.original
            return ChosenWidths(
                target, _narrowed(structure, budget.cost), share, budget.original, budget.notes
            )
    raise StepError(
        f"{target.goal}: {target.share:g} of the original's cannot be reached: the smallest "
        "reachable "
        "share is "
        f"{_ceiled(narrowest.total / budget.original)}; ask for that or more, or give `limits`, "
        "`protect` and `round_to` more room."
    )


def _narrowed(structure: Structure, cost: Cost) -> Widths:
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


def _width_choices(
    structure: Structure, target: Target, options: WidthOptions
) -> list[AllowedWidths]:
    """The widths that groups may have, for each step that is tried."""
    groups = structure.groups
    if target.goal == "latency" and options.round_to is None:
        return [
            {
                index: _measured_widths(structure, index, fewest)
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


def _measured_widths(structure: Structure, index: int, fewest: int) -> tuple[int, ...]:
    """The widths at which staircases are measured, in units."""
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
    timed = staircases(families_of(structure), count=count, seconds=SECONDS)
    whole = whole_latency(work, model, structure, narrow, count=count)
    latency = latency_cost(structure, timed, whole, narrow)
    note = (
        f"latency: {len(timed)} kinds of layers were timed by width and take "
        f"{latency.layers_ms:.3g} of {whole.ms:.3g} ms; the rest "
        "goes with the values that they make, estimated from the whole"
        + ("" if whole.narrow_ms is None else ", wide and narrow")
    )
    return _Budget(latency.cost, whole.original_ms, (note,))


def original_flops(work: Workload) -> int:
    """The FLOPs of the workload's own model."""
    return spent_flops(couple(work.model, work.inputs))


def fewest_units(
    work: Workload, model: nn.Module, structure: Structure, shares: Mapping[int, float]
) -> Widths:
    """The fewest units to keep of groups, from shares of their widths in the original model."""
    original, current = dict(work.model.named_parameters()), dict(model.named_parameters())
    fewest = {}
    for index, share in shares.items():
        group = structure.groups[index]
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


def _ceiled(share: float) -> str:
    """The share rounded up, so that it is accepted as a target."""
    return f"{ceil(share * 1e4) / 1e4:g}"
