"""Choose a format for each layer within a budget: the exact optimum for measured times and
predicted losses.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from typing import get_args

from ...errors import WorkloadError
from ...machine import hardware
from ...model.formats import NAMES
from ...model.weights import weights_hash
from ...records import Allocation, AllocationPoint, Sensitivity, readable_bytes
from ...records.allocation import Axis
from ...records.text import in_figures
from ...saliency import sensitivity as estimate_sensitivity
from ...variant.recipe import Recipe
from ...workload import Workload, workload_of
from .costs import GRADIENTS, Survey, survey
from .frontier import Choice, best_choice, frontier, point_of, uniform_choices
from .latency import Stop
from .program import is_within

FORMATS = ("fp32", "bf16", "int8", "int4-weights")
SHARES = (0.75, 0.5, 0.25)  # of what the model takes in fp32
# of the methods compared on unseen data, the one whose ranking held best
GUIDE = "quadratic-curvature"
FEWEST_SAMPLES = 4  # that tell how long the others will take
SENSITIVITY_SHARE = 0.6  # of the seconds, for the sensitivity where none is given
TIMING_SHARE = 0.5  # of the rest
FRONTIER_SHARE = 0.25  # of the seconds
CUT = "the frontier has fewer points than asked: the time was over, or it was stopped"


def plan_precision(
    work: Workload,
    *,
    latency_ms: float | None = None,
    size_bytes: float | None = None,
    loss: float | None = None,
    sensitivity: Sensitivity | None = None,
    formats: Iterable[str] = FORMATS,
    seconds: float = 60.0,
    should_stop: Stop = lambda: False,
) -> Allocation:
    """Choose each layer's format: the least predicted loss within `latency_ms` and `size_bytes`.

    With a limit on `loss` it is instead the fastest choice within that limit, or the smallest where
    `latency_ms` is limited too. Without a `sensitivity` it is estimated first; `seconds` is for
    that and for timing. Apply the result with `recipe_of(allocation)`. A plan that is stopped once
    all layers are timed has the points found until then.
    """
    work = workload_of(work)
    limits = _limits(latency_ms=latency_ms, size_bytes=size_bytes, loss=loss)
    surveyed = _surveyed(work, sensitivity, formats, seconds, should_stop)
    return _allocation(surveyed, limits, FRONTIER_SHARE * seconds, should_stop)


def plan_shares(
    work: Workload,
    shares: Iterable[float] = SHARES,
    *,
    of: Axis = "size_bytes",
    sensitivity: Sensitivity | None = None,
    formats: Iterable[str] = FORMATS,
    seconds: float = 60.0,
    should_stop: Stop = lambda: False,
) -> tuple[Allocation, ...]:
    """A plan for each share of the bytes that the model has in fp32, or of its time with
    `of="latency_ms"`; the layers are estimated and timed once for all. The rest as in
    `plan_precision`.
    """
    work = workload_of(work)
    if of not in get_args(Axis):
        raise WorkloadError(f"there is no share of {of!r}; give {' or '.join(get_args(Axis))}.")
    budgets = [_limits(**{of: share}) for share in shares]
    surveyed = _surveyed(work, sensitivity, formats, seconds, should_stop)
    whole = getattr(surveyed.baseline, of)
    each_s = FRONTIER_SHARE * seconds / max(1, len(budgets))
    return tuple(
        _allocation(surveyed, {of: budget[of] * whole}, each_s, should_stop) for budget in budgets
    )


def _surveyed(
    work: Workload,
    sensitivity: Sensitivity | None,
    formats: Iterable[str],
    seconds: float,
    should_stop: Stop,
) -> Survey:
    """Estimate the sensitivity where none is given, and time the layers."""
    names = _checked(formats)
    _check_belongs(work, sensitivity)
    share = seconds * SENSITIVITY_SHARE if sensitivity is None else 0.0

    def estimate(layers: int) -> Sensitivity:
        if sensitivity is not None:
            return sensitivity
        return _estimated(work, layers, [one for one in names if one != "fp32"], share, should_stop)

    return survey(work, estimate, names, TIMING_SHARE * (seconds - share), should_stop)


def _estimated(
    work: Workload, layers: int, formats: list[str], seconds: float, should_stop: Stop
) -> Sensitivity:
    """The sensitivity by the method that ranks best, or by gradients alone where its second
    derivatives, one product for each layer and format, would take longer than the time.
    """
    samples, began, is_slow = 0, 0.0, False

    def is_over() -> bool:
        nonlocal samples, began, is_slow
        samples, now = samples + 1, time.perf_counter()
        if samples == 1:
            began = now  # the gradients that all products share are not counted
        elif samples >= FEWEST_SAMPLES:
            is_slow = (now - began) / (samples - 1) * layers * len(formats) > seconds
        return is_slow or should_stop()

    def estimated(method: str, stop: Stop) -> Sensitivity:
        return estimate_sensitivity(
            work, formats=formats, methods=(method,), seconds=seconds, should_stop=stop
        )

    by_curvature = estimated(GUIDE, is_over)
    return estimated(GRADIENTS, should_stop) if is_slow else by_curvature


def _allocation(
    surveyed: Survey, limits: dict[str, float], seconds: float, should_stop: Stop
) -> Allocation:
    """The best choice within the limits, and the frontier around it."""
    known = surveyed.sensitivity
    order, axis = _goal(limits)
    uniform = uniform_choices(surveyed.problems, surveyed.formats)
    chosen, reason = _chosen(surveyed, uniform, order, limits)
    beside = _beside(limits, axis)
    known_choices = [
        chosen,
        *(choice for choice in uniform.values() if is_within(choice.cost, beside)),
    ]
    points, is_whole = frontier(
        surveyed.problems, axis, beside, known_choices, seconds, should_stop
    )
    points = _with(points, chosen, axis)
    cut = [] if is_whole else [CUT]
    shown = tuple(point_of(point, f"point {index}") for index, point in enumerate(points, 1))
    return Allocation(
        workload=surveyed.work.name,
        machine=hardware().label,
        threads=surveyed.table.threads,
        unit=known.unit,
        axis=axis,
        limits=limits,
        baseline_ms=surveyed.baseline.latency_ms,
        baseline_bytes=round(surveyed.baseline.size_bytes),
        points=shown,
        chosen=next(index for index, point in enumerate(points) if point is chosen),
        uniform=tuple(point_of(choice, f"all {name}") for name, choice in uniform.items()),
        reason=reason,
        notes=(*surveyed.notes, *_notes(surveyed.formats, known, chosen, shown), *cut),
    )


def recipe_of(allocation: Allocation, index: int | None = None) -> Recipe:
    """The recipe of a point of the frontier; by default of the chosen one."""
    index = allocation.chosen if index is None else index
    if not 0 <= index < len(allocation.points):
        raise WorkloadError(
            f"the frontier has no point {index}; its points are 0 to {len(allocation.points) - 1}."
        )
    return recipe_of_point(allocation.points[index])


def recipe_of_point(point: AllocationPoint) -> Recipe:
    """The recipe of a point, also of a uniform one."""
    return Recipe([dict(step) for step in point.recipe_steps])


def _limits(**inputs: float | None) -> dict[str, float]:
    limits = {name: float(value) for name, value in inputs.items() if value is not None}
    if not limits:
        raise WorkloadError(
            "no budget was given; give latency_ms or size_bytes to minimise the loss within it, "
            "loss to minimise the latency, or plan for shares of fp32 with plan_shares."
        )
    for name, value in limits.items():
        if not math.isfinite(value) or value < 0 or (value == 0 and name != "loss"):
            raise WorkloadError(f"{name}={value:g} is not a budget; give a number above zero.")
    return limits


def _checked(formats: Iterable[str]) -> tuple[str, ...]:
    names = (formats,) if isinstance(formats, str) else tuple(dict.fromkeys(formats))
    for name in names:
        if name not in NAMES:
            raise WorkloadError(
                f"{name!r} is not a format that a layer can run in; there are {', '.join(NAMES)}."
            )
    if not set(names) - {"fp32"}:
        raise WorkloadError(
            f"there is nothing to choose from with formats={names!r}; name one beside fp32, such "
            "as 'int8'."
        )
    return names


def _check_belongs(work: Workload, sensitivity: Sensitivity | None) -> None:
    if sensitivity is not None and sensitivity.weights_hash not in (None, weights_hash(work.model)):
        raise WorkloadError(
            f"the sensitivity of {sensitivity.workload} was estimated with other weights than "
            f"{work.name} has; estimate it again, or leave it out."
        )


def _goal(limits: Mapping[str, float]) -> tuple[tuple[str, ...], Axis]:
    """The costs to minimise, in order, and the axis of the frontier."""
    if "loss" not in limits:
        axis: Axis = "latency_ms" if "latency_ms" in limits else "size_bytes"
        other = "size_bytes" if axis == "latency_ms" else "latency_ms"
        return ("loss", axis, other), axis
    axis = "size_bytes" if "latency_ms" in limits else "latency_ms"
    return (axis, "loss"), axis


def _beside(limits: Mapping[str, float], axis: str) -> dict[str, float]:
    """The limits that hold on the whole frontier: neither of its two axes is limited."""
    return {name: limit for name, limit in limits.items() if name not in ("loss", axis)}


def _chosen(
    surveyed: Survey,
    uniform: Mapping[str, Choice],
    order: tuple[str, ...],
    limits: Mapping[str, float],
) -> tuple[Choice, str]:
    """The best choice and the reason; a uniform one if nothing is better, since it is simpler."""
    best = best_choice(surveyed.problems, order, limits)
    if best is None:
        raise WorkloadError(_impossible(surveyed, limits))
    least, beaten = [getattr(best.cost, name) for name in order], []
    for name, choice in uniform.items():
        if not is_within(choice.cost, limits):
            continue
        if [getattr(choice.cost, kind) for kind in order] <= least:
            return (
                choice,
                f"all layers in {name} is the best by prediction; no mixture is better within the "
                "budget",
            )
        beaten.append(name)
    proof = "the exact best" if best.solution.is_proven else "the best found in the time for it"
    words = (
        f"beside it all layers in {', '.join(beaten)}, which would be worse"
        if beaten
        else "no uniform format is within it"
    )
    return best, f"a mixture of formats is {proof} within the budget by prediction; {words}"


def _impossible(surveyed: Survey, limits: Mapping[str, float]) -> str:
    """The message for limits that cannot be met: the smallest that one of them can be."""
    for name, limit in limits.items():
        least = best_choice(surveyed.problems, (name,), {})
        if least is not None and not is_within(least.cost, {name: limit}):
            reachable = getattr(least.cost, name)
            return (
                f"{_assignment(name, limit)} cannot be kept: the smallest reachable is "
                f"{_amount(name, reachable)}; ask for that or more."
            )
    first, *rest = limits
    least = best_choice(surveyed.problems, (first,), {name: limits[name] for name in rest})
    where = " and ".join(_assignment(name, limits[name]) for name in rest)
    if least is None:
        return (
            f"{_assignment(first, limits[first])}, {where} can each be kept, but not together; "
            "loosen one of them."
        )
    reachable = _amount(first, getattr(least.cost, first))
    return (
        f"{_assignment(first, limits[first])} cannot be kept together with {where}: the smallest "
        f"reachable is {reachable}."
    )


def _assignment(name: str, limit: float) -> str:
    return f"{name}={limit:g}"


def _amount(name: str, value: float) -> str:
    if name == "size_bytes":
        return f"{math.ceil(value):,} bytes ({readable_bytes(math.ceil(value))})"
    is_time = name == "latency_ms"
    return f"{in_figures(value, 4)} ms" if is_time else f"a predicted loss of {value:.3g}"


def _with(points: list[Choice], chosen: Choice, axis: str) -> list[Choice]:
    """The frontier with the chosen point in it, even if another limit makes that a beaten one."""
    if any(point is chosen for point in points):
        return points
    others = [point for point in points if point.cost != chosen.cost]
    return sorted([*others, chosen], key=lambda point: (getattr(point.cost, axis), point.cost.loss))


def _notes(
    names: Iterable[str], known: Sensitivity, chosen: Choice, points: Sequence[AllocationPoint]
) -> list[str]:
    estimates = [known.predicted(row.layer, name) for row in known.rows for name in names]
    uncertain = sum(
        estimate.value < (estimate.error or 0.0) for estimate in estimates if estimate is not None
    )
    notes = []
    if uncertain:
        notes.append(
            f"predicted losses below zero or their standard error count as that error: {uncertain}"
        )
    if known.unit == "output error":
        notes.append("there is no loss: what is added up is the output's relative error")
    losses = [point.loss for point in points]
    if len(points) > 1 and max(losses) - min(losses) < max(point.loss_error for point in points):
        notes.append(
            "the losses along the frontier differ by less than they are uncertain; more batches "
            "would tell them apart"
        )
    if not chosen.solution.is_proven:
        notes.append("the program was stopped before its best was proven")
    return notes
