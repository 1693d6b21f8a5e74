"""Points of a frontier measured: applied, timed in turn with the original model, and evaluated on
held-out data.

They are timed as their layers were, call by call in turn and with the plan's number of threads, so
that predictions and measurements are comparable.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from functools import partial
from statistics import median
from typing import Any

from ...errors import ShouldStop, WorkloadError, stop_if_asked
from ...machine import threads
from ...measure import in_turn
from ...model.weights import weights_bytes
from ...progress import progress
from ...records import Achieved, Agreement, Allocation, AllocationPoint
from ...saliency.estimate_layers import rank_correlation
from ...variant import Variant, apply
from ...workload import Inputs, Workload, running, workload_of
from ...workload.data import first_batches
from .costs import error_of_output, losses, rise
from .planning import recipe_of_point

POINTS = 6
AS_IS = ""  # the key of the original model


def achieved(
    work: Workload,
    allocation: Allocation,
    points: Iterable[int] | None = None,
    *,
    uniform: bool | Iterable[int] = True,
    seconds: float = 30.0,
    should_stop: ShouldStop | None = None,
) -> Allocation:
    """Apply points of the frontier (by default six spread over it, and the chosen one) and measure
    them.

    The returned record holds the measurements beside the predictions, and how far the two agree;
    `uniform` says which of the uniform choices are measured too, all or some by index.
    """
    work = workload_of(work)
    if work.name != allocation.workload:
        raise WorkloadError(
            f"the allocation was made for {allocation.workload}, and this is {work.name}; call "
            "plan_precision on this one."
        )
    selected = [allocation.points[index] for index in _indices(allocation, points)] + _uniform(
        allocation, uniform
    )
    variants: dict[str, Variant] = {}
    with progress("applying points", len(selected)) as shown:
        for point in selected:
            variants[point.name] = apply(work, recipe_of_point(point), should_stop=should_stop)
            shown.advance(doing=point.name)
    with threads(allocation.threads):
        stop_if_asked(should_stop)
        timed = _timed(work, variants, seconds)
        measured = _measured(work, allocation, variants, timed, should_stop)
    return _with_agreement(
        allocation.model_copy(
            update={
                "points": tuple(_filled(point, measured) for point in allocation.points),
                "uniform": tuple(_filled(point, measured) for point in allocation.uniform),
            }
        )
    )


def _indices(allocation: Allocation, points: Iterable[int] | None) -> list[int]:
    count = len(allocation.points)
    if points is None:
        steps = max(1, min(POINTS, count) - 1)
        spread = {round(step * (count - 1) / steps) for step in range(steps + 1)}
        return sorted(spread | {allocation.chosen})
    return _checked(points, count, "the frontier has no point {}; its points are 0 to {}.")


def _uniform(allocation: Allocation, selected: bool | Iterable[int]) -> list[AllocationPoint]:
    if isinstance(selected, bool):
        return list(allocation.uniform) if selected else []
    problem = "there is no uniform choice {0}; there are {2}, counted from 0."
    indices = _checked(selected, len(allocation.uniform), problem)
    return [allocation.uniform[index] for index in indices]


def _checked(indices: Iterable[int], count: int, problem: str) -> list[int]:
    indices = list(dict.fromkeys(indices))
    for index in indices:
        if not 0 <= index < count:
            raise WorkloadError(problem.format(index, count - 1, count))
    return indices


def _filled(point: AllocationPoint, measured: Mapping[str, Achieved]) -> AllocationPoint:
    return (
        point.model_copy(update={"achieved": measured[point.name]})
        if point.name in measured
        else point
    )


def _timed(work: Workload, variants: Mapping[str, Variant], seconds: float) -> dict[str, float]:
    """The ms of each variant, and of the original model."""
    models = {AS_IS: work.model} | {name: variant.module for name, variant in variants.items()}
    with running(*models.values()):
        return in_turn(
            {name: partial(work.inputs.clone(), model) for name, model in models.items()},
            work.device,
            seconds,
        )


def _test_batches(work: Workload) -> Iterator[tuple[Inputs, Any]]:
    """All batches of the test data: the loss, like the metric, is over all of it."""
    assert work.test is not None
    return first_batches(work.test, work.device, "test data")


def _measured(
    work: Workload,
    allocation: Allocation,
    variants: Mapping[str, Variant],
    ms: Mapping[str, float],
    should_stop: ShouldStop | None,
) -> dict[str, Achieved]:
    """Latency, size, loss and metric of each variant; the loss in the unit of the prediction."""
    by_loss = allocation.unit == "loss" and work.loss is not None and work.test is not None
    before = losses(work, work.model, _test_batches(work)) if by_loss else None
    results: dict[str, Achieved] = {}
    with progress("judging points", len(variants)) as shown:
        for name, variant in variants.items():
            stop_if_asked(should_stop)
            loss, error = (
                rise(before, losses(work, variant.module, _test_batches(work)))
                if before is not None
                else (None, None)
            )
            if allocation.unit == "output error":
                loss = error_of_output(work, variant.module)
            results[name] = Achieved(
                latency_ms=ms[name],
                baseline_ms=ms[AS_IS],
                size_bytes=weights_bytes(variant.module),
                loss=loss,
                loss_error=error,
                metric=work.evaluate(variant.module),
            )
            shown.advance(doing=name)
    return results


def _with_agreement(allocation: Allocation) -> Allocation:
    """Add how far predictions agree with measurements.

    Latencies are compared as shares of the baseline's, so that a machine that is slower today
    changes both.
    """
    done = [
        (point, point.achieved) for point in allocation.everything if point.achieved is not None
    ]
    times = [
        (point.latency_ms / allocation.baseline_ms, measured.latency_ms / measured.baseline_ms)
        for point, measured in done
    ]
    losses = [(point.loss, measured.loss) for point, measured in done if measured.loss is not None]
    return allocation.model_copy(
        update={
            "latency_agreement": agreement(times),
            "loss_agreement": agreement(losses) if losses else None,
        }
    )


def agreement(pairs: list[tuple[float, float]]) -> Agreement:
    """Of pairs (prediction, measurement): the median ratio, and the rank correlation."""
    ratios = [measured / predicted for predicted, measured in pairs if predicted > 0]
    return Agreement(
        points=len(pairs), ratio=median(ratios) if ratios else None, rank=rank_correlation(pairs)
    )
