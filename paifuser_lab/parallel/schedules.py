"""When each stage of a pipeline computes which microbatch: GPipe and 1F1B, simulated.

GPipe (Huang et al., 2019) runs all forward passes and then all backward passes; 1F1B (PipeDream,
Narayanan et al., 2019) alternates once the pipeline is full, and keeps fewer activations.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import NamedTuple

from ..errors import StepError
from ..machine import machine_label
from ..records import PipelineSchedule, PipelineSlot, PipelineStageLayers
from .chain import PartCost


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
    cores: int | None = None,
) -> tuple[PipelineSlot, ...]:
    """When each stage computes each microbatch, if a pass takes a stage these times.

    A forward pass waits for the one of the stage before and a backward pass for the one of the
    stage after, each `transfer_ms` later. Where fewer than the stages can compute at once, as on
    `cores` of one machine, those that do share them evenly.
    """
    stages = len(forward_ms)
    waiting = [list(reversed(tasks)) for tasks in tasks_of(schedule, stages, microbatches)]
    ends: dict[tuple[int, Task], float] = {}
    running: dict[int, _Pass] = {}
    slots: list[PipelineSlot] = []
    now = 0.0

    def ready(stage: int, task: Task) -> float | None:
        """When the input of a task is there; None if what computes it has not run yet."""
        source = stage + 1 if task.is_backward else stage - 1
        if source < 0:
            return 0.0
        if source == stages:
            return ends.get((stage, Task(task.microbatch, False)))
        end = ends.get((source, task))
        return None if end is None else end + transfer_ms

    while any(waiting) or running:
        later = []
        for stage, tasks in enumerate(waiting):
            if not tasks or stage in running or (at := ready(stage, tasks[-1])) is None:
                continue
            if at > now:
                later.append(at)
                continue
            task = tasks.pop()
            times = backward_ms if task.is_backward else forward_ms
            running[stage] = _Pass(task, now, now, times[stage])
        if not running and not later:
            raise StepError(f"The schedule {schedule} waits for itself.")
        rate = min(1.0, (cores or stages) / len(running)) if running else 1.0
        for current in running.values():
            current.go_on(now, rate)
        now = min([*later, *(current.end for current in running.values())])
        for stage, current in list(running.items()):
            if current.end <= now:
                del running[stage]
                ends[stage, current.task] = now
                slots.append(
                    PipelineSlot(
                        stage=stage,
                        microbatch=current.task.microbatch,
                        is_backward=current.task.is_backward,
                        begin_ms=current.begin,
                        end_ms=now,
                    )
                )
    return tuple(sorted(slots, key=lambda slot: (slot.begin_ms, slot.stage)))


@dataclass
class _Pass:
    """A task that runs: what is left of it since a moment, at the present rate."""

    task: Task
    begin: float
    since: float
    left: float
    rate: float = 1.0

    @property
    def end(self) -> float:
        return self.since + self.left / self.rate

    def go_on(self, now: float, rate: float) -> None:
        """Compute at another rate from now on."""
        if rate != self.rate:
            self.left -= (now - self.since) * self.rate
            self.since, self.rate = now, rate


def predicted_schedule(
    workload: str,
    costs: Sequence[PartCost],
    starts: Sequence[int],
    schedule: str,
    microbatches: int,
    *,
    split: str,
    transfer_ms: float = 0.0,
    cores: int | None = None,
) -> PipelineSchedule:
    """The record of a pipeline with these stages, as it would run; `cores` is how many of them can
    compute at once.
    """
    stages = _stage_rows(costs, starts, schedule, microbatches)
    slots = simulate(
        schedule,
        [stage.forward_ms for stage in stages],
        [stage.backward_ms for stage in stages],
        microbatches,
        transfer_ms,
        cores,
    )
    return PipelineSchedule(
        workload=workload,
        machine=machine_label(),
        schedule=schedule,
        split=split,
        microbatches=microbatches,
        stages=stages,
        cores=cores,
        predicted=slots,
    )


def _stage_rows(
    costs: Sequence[PartCost], starts: Sequence[int], schedule: str, microbatches: int
) -> tuple[PipelineStageLayers, ...]:
    rows = []
    tasks = tasks_of(schedule, len(starts), microbatches)
    for stage, (begin, end) in enumerate(zip(starts, [*starts[1:], len(costs)], strict=True)):
        own = costs[begin:end]
        kept = most = 0
        for task in tasks[stage]:
            kept += -1 if task.is_backward else 1
            most = max(most, kept)
        rows.append(
            PipelineStageLayers(
                first_layer=own[0].first_layer,
                last_layer=own[-1].last_layer,
                forward_ms=sum(cost.forward_ms for cost in own),
                backward_ms=sum(cost.backward_ms for cost in own),
                parameter_bytes=sum(cost.parameter_bytes for cost in own),
                input_bytes=own[0].entry_bytes,
                kept_microbatches=most,
            )
        )
    return tuple(rows)
