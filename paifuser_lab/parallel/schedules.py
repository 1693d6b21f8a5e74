"""When each stage of a pipeline computes which microbatch: GPipe and 1F1B, simulated.

GPipe (Huang et al., 2019) runs all forward passes and then all backward passes; 1F1B (PipeDream,
Narayanan et al., 2019) alternates once the pipeline is full, and keeps fewer activations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from ..errors import StepError
from ..records import PipelineSlot


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
    if microbatches < 1:
        raise StepError(f"microbatches={microbatches} is not possible; give 1 or more.")
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
    ends: dict[tuple[int, Task], float] = {}
    free = [0.0] * stages
    slots: list[PipelineSlot] = []

    def ready(stage: int, task: Task) -> float | None:
        """When the input of a task is there; None if what computes it has not run yet."""
        source = stage + 1 if task.is_backward else stage - 1
        if source < 0:
            return 0.0
        if source == stages:
            return ends.get((stage, Task(task.microbatch, False)))
        end = ends.get((source, task))
        return None if end is None else end + transfer_ms

    while any(waiting):
        before = len(slots)
        for stage, tasks in enumerate(waiting):
            while tasks and (begin := ready(stage, tasks[-1])) is not None:
                task = tasks.pop()
                begin = max(begin, free[stage])
                times = backward_ms if task.is_backward else forward_ms
                free[stage] = ends[stage, task] = begin + times[stage]
                slots.append(
                    PipelineSlot(
                        stage=stage,
                        microbatch=task.microbatch,
                        is_backward=task.is_backward,
                        begin_ms=begin,
                        end_ms=free[stage],
                    )
                )
        if len(slots) == before:
            raise StepError(f"The schedule {schedule} waits for itself.")
    return tuple(sorted(slots, key=lambda slot: (slot.begin_ms, slot.stage)))
