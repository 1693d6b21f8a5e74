"""A chain of layers cut into stages whose slowest is as quick as it can be; and when each stage
computes which microbatch: GPipe and 1F1B, simulated.

GPipe (Huang et al., 2019) runs all forward passes and then all backward passes; 1F1B (PipeDream,
Narayanan et al., 2019) alternates once the pipeline is full, and keeps fewer activations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from itertools import accumulate
from math import inf
from typing import NamedTuple

from ..arguments import check_count
from ..errors import StepError
from ..machine import machine_label
from ..records import PipelineSchedule, PipelineSlot, PipelineStageLayers
from .chain import PartCost


def partition(
    costs: Sequence[float],
    stages: int,
    *,
    sizes: Sequence[int] | None = None,
    limit: int | None = None,
) -> tuple[int, ...]:
    """Where each stage begins, as indices into the chain; the first is 0.

    The largest sum of costs of a stage is the least that any cut reaches, by dynamic programming
    over the ends of stages. No stage's `sizes` add up to more than `limit`.
    """
    count = len(costs)
    _check_stages(count, stages)
    sizes = sizes if sizes is not None else [0] * count
    cost_before, size_before = [0.0, *accumulate(costs)], [0, *accumulate(sizes)]

    def cost(begin: int, end: int) -> float:
        if limit is not None and size_before[end] - size_before[begin] > limit:
            return inf
        return cost_before[end] - cost_before[begin]

    best = [0.0] + [inf] * count  # of the layers before an end, in the stages so far
    choices: list[list[int]] = []
    for stage in range(1, stages + 1):
        following, chosen = [inf] * (count + 1), [0] * (count + 1)
        for end in range(stage, count + 1):
            for begin in range(stage - 1, end):
                slowest = max(best[begin], cost(begin, end))
                if slowest < following[end]:
                    following[end], chosen[end] = slowest, begin
        best = following
        choices.append(chosen)
    if best[count] == inf:
        raise StepError(
            f"No cut into {stages} stages keeps each within {limit:,} bytes; the largest layer has "
            f"{max(sizes):,} and all have {sum(sizes):,}: give more stages or a higher limit."
        )
    begins, end = [], count
    for chosen in reversed(choices):
        end = chosen[end]
        begins.append(end)
    return tuple(reversed(begins))


def equal_split(count: int, stages: int) -> tuple[int, ...]:
    """Where each stage begins if all have the same number of layers, give or take one."""
    _check_stages(count, stages)
    return tuple(stage * count // stages for stage in range(stages))


def _check_stages(count: int, stages: int) -> None:
    if not 1 <= stages <= count:
        raise StepError(
            f"{count} layers in a row cannot be cut into {stages} stages; give 1 to {count}."
        )


class Task(NamedTuple):
    """One microbatch's forward or backward pass in a stage."""

    microbatch: int
    is_backward: bool


def gpipe(stage: int, stages: int, microbatches: int) -> list[Task]:
    """All forward passes, then all backward passes."""
    return [Task(index, False) for index in range(microbatches)] + [
        Task(index, True) for index in range(microbatches)
    ]


def one_forward_one_backward(stage: int, stages: int, microbatches: int) -> list[Task]:
    """As many forward passes as stages follow, then one backward pass for each forward pass."""
    ahead = min(microbatches, stages - stage)
    tasks = [Task(index, False) for index in range(ahead)]
    for index in range(microbatches):
        tasks.append(Task(index, True))
        if ahead + index < microbatches:
            tasks.append(Task(ahead + index, False))
    return tasks


SCHEDULES: dict[str, Callable[[int, int, int], list[Task]]] = {
    "gpipe": gpipe,
    "1f1b": one_forward_one_backward,
}


def tasks_of(schedule: str, stages: int, microbatches: int) -> list[list[Task]]:
    """The tasks of each stage, in order."""
    if schedule not in SCHEDULES:
        raise StepError(f"schedule={schedule!r} is unknown; there are {', '.join(SCHEDULES)}.")
    check_count("microbatches", microbatches, error=StepError)
    return [SCHEDULES[schedule](stage, stages, microbatches) for stage in range(stages)]


def simulate(
    schedule: str,
    forward_ms: Sequence[float],
    backward_ms: Sequence[float],
    microbatches: int,
    transfer_ms: float = 0.0,
) -> tuple[PipelineSlot, ...]:
    """When each stage computes each microbatch, if a pass takes a stage these times.

    A forward pass waits for the one of the stage before and a backward pass for the one of the
    stage after, each `transfer_ms` later.
    """
    stages = len(forward_ms)
    waiting = [list(reversed(tasks)) for tasks in tasks_of(schedule, stages, microbatches)]
    slots: dict[tuple[int, Task], PipelineSlot] = {}
    free = [0.0] * stages

    def ready(stage: int, task: Task) -> float | None:
        """When the input of a task is there; None if what computes it has not run yet."""
        source = stage + 1 if task.is_backward else stage - 1
        if source < 0:
            return 0.0
        if source == stages:
            return slots[stage, Task(task.microbatch, False)].end_ms
        slot = slots.get((source, task))
        return None if slot is None else slot.end_ms + transfer_ms

    while any(waiting):
        for stage, tasks in enumerate(waiting):
            while tasks and (at := ready(stage, tasks[-1])) is not None:
                task = tasks.pop()
                begin = max(at, free[stage])
                free[stage] = begin + (backward_ms if task.is_backward else forward_ms)[stage]
                slots[stage, task] = PipelineSlot(
                    stage=stage,
                    microbatch=task.microbatch,
                    is_backward=task.is_backward,
                    begin_ms=begin,
                    end_ms=free[stage],
                )
    return tuple(sorted(slots.values(), key=lambda slot: (slot.begin_ms, slot.stage)))


def predicted_schedule(
    workload: str,
    costs: Sequence[PartCost],
    starts: Sequence[int],
    schedule: str,
    microbatches: int,
    *,
    split: str,
    transfer_ms: float = 0.0,
) -> PipelineSchedule:
    """The record of a pipeline with these stages, as it would run."""
    stages = _stage_rows(costs, starts, schedule, microbatches)
    slots = simulate(
        schedule,
        [stage.forward_ms for stage in stages],
        [stage.backward_ms for stage in stages],
        microbatches,
        transfer_ms,
    )
    return PipelineSchedule(
        workload=workload,
        machine=machine_label(),
        schedule=schedule,
        split=split,
        microbatches=microbatches,
        stages=stages,
        predicted=slots,
    )


def _stage_rows(
    costs: Sequence[PartCost], starts: Sequence[int], schedule: str, microbatches: int
) -> tuple[PipelineStageLayers, ...]:
    rows = []
    tasks = tasks_of(schedule, len(starts), microbatches)
    for stage, (begin, end) in enumerate(zip(starts, [*starts[1:], len(costs)], strict=True)):
        own = costs[begin:end]
        kept = accumulate(-1 if task.is_backward else 1 for task in tasks[stage])
        rows.append(
            PipelineStageLayers(
                first_layer=own[0].first_layer,
                last_layer=own[-1].last_layer,
                forward_ms=sum(cost.forward_ms for cost in own),
                backward_ms=sum(cost.backward_ms for cost in own),
                parameter_bytes=sum(cost.parameter_bytes for cost in own),
                input_bytes=own[0].entry_bytes,
                kept_microbatches=max(kept),
            )
        )
    return tuple(rows)
