"""Pipeline parallelism: each process has a stage of the model's layers, and microbatches pass
through all of them. Built on torch.distributed.pipelining.

The stages are chosen so that the slowest is as quick as it can be, by the measured times of the
layers and within a limit of bytes. The bubble, in which stages wait, is predicted and measured.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from statistics import median
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import ParallelError
from ..model.copying import copied
from ..records import PipelineSchedule, PipelineSlot, Profile
from ..records.parallel import bubble
from ..workload import Inputs, Workload
from ..workload.data import first_batches
from .chain import Chain, PartCost
from .exchange import make_equal
from .schedules import equal_split, partition, predicted_schedule, simulate, tasks_of


def pipeline(
    work: Workload,
    *,
    schedule: str = "1f1b",
    microbatches: int = 4,
    profile: Profile | None = None,
    limit: int | None = None,
    begins: str | None = None,
) -> Pipeline:
    """This process's stage of a workload's model, with its schedule; every process calls it alike.

    Weights become those of rank 0. The layers are split by the times in `profile`, a record of
    `lab.profile(work, backward=True)`, or without it by times that rank 0 measures here; no stage
    has more than `limit` bytes of parameters. With `begins="equal"` they have equal numbers of
    layers instead. The batch is cut into equal microbatches, and the loss is the mean of theirs.
    """
    if not dist.is_initialized():
        raise ParallelError(
            "a pipeline needs several processes; call it in a function that parallel.run starts."
        )
    stages = dist.get_world_size()
    tasks_of(schedule, stages, microbatches)
    inputs, target = batch_of(work)
    part = part_of(inputs, microbatches, work.name)
    make_equal(work.model)
    chain = Chain(work.model, part, name=work.name)
    costs = _agreed(chain, work, target_part(inputs, target, microbatches), profile)
    split, starts = _begins(costs, stages, profile, limit, begins)
    predicted = predicted_schedule(work.name, costs, starts, schedule, microbatches, split=split)
    return Pipeline(work, chain, starts, predicted)


def batch_of(work: Workload) -> tuple[Inputs, Any]:
    """The first batch of a workload's train data; raises where it or the loss is missing."""
    batch = None
    if work.loss is not None and work.train is not None:
        with closing(first_batches(work.train, work.device, "train data")) as batches:
            batch = next(batches, None)
    if batch is None:
        raise ParallelError(
            f"{work.name} has no loss or no train data; give the workload both: "
            "Workload(model, inputs, loss=…, train=[(inputs, target), …])."
        )
    return batch


def part_of(inputs: Inputs, microbatches: int, name: str) -> Inputs:
    """The inputs of the first of so many microbatches."""
    for tensor in inputs.tensors:
        if not tensor.ndim or tensor.shape[0] % microbatches:
            rows = tensor.shape[0] if tensor.ndim else 0
            raise ParallelError(
                f"{name}: a batch of {rows} cannot be cut into {microbatches} equal microbatches; "
                "give another number of them or another batch size."
            )
    return inputs.map(lambda tensor: tensor[: tensor.shape[0] // microbatches].clone())


def target_part(inputs: Inputs, target: Any, microbatches: int) -> Any:
    """The part of a target, of any structure, for the first of so many microbatches."""
    rows = inputs.tensors[0].shape[0]
    return pytree.tree_map_only(
        Tensor,
        lambda tensor: (
            tensor[: rows // microbatches] if tensor.ndim and len(tensor) == rows else tensor
        ),
        target,
    )


def _agreed(chain: Chain, work: Workload, target: Any, profile: Profile | None) -> list[PartCost]:
    """The costs of the parts, with the times of rank 0 on every rank."""
    assert work.loss is not None
    costs = chain.costs(work.loss, target, profile=profile)
    times = torch.tensor([[cost.forward_ms, cost.backward_ms] for cost in costs])
    dist.broadcast(times, 0)
    return [
        replace(cost, forward_ms=forward, backward_ms=backward)
        for cost, (forward, backward) in zip(costs, times.tolist(), strict=True)
    ]


def _begins(
    costs: list[PartCost],
    stages: int,
    profile: Profile | None,
    limit: int | None,
    begins: str | None,
) -> tuple[str, tuple[int, ...]]:
    """By what the stages are split, and the part where each begins."""
    if begins is None:
        times = [cost.forward_ms + cost.backward_ms for cost in costs]
        sizes = [cost.parameter_bytes for cost in costs]
        starts = partition(times, stages, sizes=sizes, limit=limit)
        return ("measured times" if profile is None else "profile"), starts
    if begins != "equal":
        raise ParallelError(f"begins={begins!r} is unknown; give 'equal', or leave it out.")
    return "equal numbers of layers", equal_split(len(costs), stages)


class Pipeline:
    """This process's stage of a model: `step` trains on a batch, `whole_model` collects all stages.

    A weight that layers of several stages share is in each of them, and its gradients are added.
    """

    def __init__(
        self, work: Workload, chain: Chain, starts: tuple[int, ...], predicted: PipelineSchedule
    ) -> None:
        self.work, self.chain, self.starts, self.predicted = work, chain, starts, predicted
        self.rank, self.world = dist.get_rank(), dist.get_world_size()
        self.slots: list[PipelineSlot] = []
        self.core_wait_ms: float | None = None  # of the last step
        ends = [*starts[1:], len(chain)]
        self._parts = [chain.parts[a:b] for a, b in zip(starts, ends, strict=True)]
        self.module = nn.Sequential(*self._parts[self.rank])
        self.shared = self._shared_weights()
        self._first_buffers = [(value, value.clone()) for value in self.module.buffers()]
        self._schedule = self._scheduled()

    def parameters(self) -> list[nn.Parameter]:
        """The weights of this stage, for an optimizer."""
        return list(self.module.parameters())

    def step(self, inputs: Any, target: Any) -> float:
        """Add a batch's gradients to those that are there; returns its loss, on every process."""
        args = Inputs.of(inputs).args
        earlier = [(weight, weight.grad) for weight in self.parameters()]
        for weight, _ in earlier:
            weight.grad = None  # or it would be divided and added up once more
        losses: list[Tensor] = []
        is_last = self.rank == self.world - 1
        self.slots = []
        dist.barrier()
        self._began, waited = time.perf_counter(), core_wait_ms()
        self._schedule.step(
            *(args if self.rank == 0 else ()),
            **({"target": target, "losses": losses} if is_last else {}),
            return_outputs=False,
        )
        now = core_wait_ms()
        self.core_wait_ms = None if waited is None or now is None else now - waited
        self._add_shared_gradients()
        for weight, gradient in earlier:
            if gradient is not None:
                weight.grad = gradient if weight.grad is None else gradient + weight.grad
        value = torch.stack(losses).mean().detach() if is_last else torch.zeros(())
        value = value.float()
        dist.broadcast(value, self.world - 1)
        return float(value)

    def record(self) -> PipelineSchedule:
        """The last step as a record: the predicted slots and the measured ones of all stages."""
        gathered: list[Any] = [None] * self.world
        dist.all_gather_object(gathered, (self.slots, self.core_wait_ms))
        slots = [slot for of_stage, _ in gathered for slot in of_stage]
        slots.sort(key=lambda slot: (slot.begin_ms, slot.stage))
        waits = [wait for _, wait in gathered if wait is not None]
        update = {"measured": tuple(slots), "core_wait_ms": tuple(waits)}
        return with_explanation(self.predicted.model_copy(update=update))

    def whole_model(self) -> nn.Module:
        """A copy of the workload's model with the weights and buffers of all stages."""
        model = copied(self.work.model)
        state = model.state_dict()
        for stage, parts in enumerate(self._parts):
            for part in parts:
                for name, tensor in part.state_dict().items():
                    value = tensor.detach().clone()
                    dist.broadcast(value, stage)
                    if name in state:
                        state[name].copy_(value)
        return model

    def _shared_weights(self) -> list[tuple[list[nn.Parameter], dist.ProcessGroup | None]]:
        """This stage's copies of each shared weight, with the group of processes that have one."""
        tied = {
            name: id(weight)
            for name, weight in self.work.model.named_parameters(remove_duplicate=False)
        }
        holders: dict[int, dict[int, dict[int, nn.Parameter]]] = {}
        for stage, parts in enumerate(self._parts):
            for part in parts:
                for name, weight in part.named_parameters(remove_duplicate=False):
                    copies = holders.setdefault(tied[name], {}).setdefault(stage, {})
                    copies[id(weight)] = weight
        shared: list[tuple[list[nn.Parameter], dist.ProcessGroup | None]] = []
        for stages in holders.values():
            group = dist.new_group(sorted(stages)) if len(stages) > 1 else None
            own = list(stages.get(self.rank, {}).values())
            if own and (group is not None or len(own) > 1):
                shared.append((own, group))
        return shared

    def _add_shared_gradients(self) -> None:
        for weights, group in self.shared:
            total = torch.zeros_like(weights[0])
            for weight in weights:
                total += weight.grad if weight.grad is not None else 0
            if group is not None:
                dist.all_reduce(total, group=group)
            for weight in weights:
                weight.grad = total.clone()

    def _scheduled(self) -> Any:
        from torch.distributed import pipelining

        stage = pipelining.PipelineStage(self.module, self.rank, self.world, self.work.device)
        stage.forward_one_chunk = self._noting(stage.forward_one_chunk, is_backward=False)  # type: ignore[method-assign]
        stage.backward_one_chunk = self._noting(stage.backward_one_chunk, is_backward=True)  # type: ignore[method-assign]
        kinds = {"gpipe": pipelining.ScheduleGPipe, "1f1b": pipelining.Schedule1F1B}
        count = self.predicted.microbatches
        kind = kinds[self.predicted.schedule]
        return kind(stage, n_microbatches=count, loss_fn=self.work.loss)

    def _noting(self, compute: Callable[..., Any], *, is_backward: bool) -> Callable[..., Any]:
        """The same, and when it ran."""

        def noted(index: int, *args: Any, **kwargs: Any) -> Any:
            while self._first_buffers:  # the schedule found shapes by runs on uninitialised memory
                value, first = self._first_buffers.pop()
                value.copy_(first)
            begin = time.perf_counter()
            result = compute(index, *args, **kwargs)
            end = time.perf_counter()
            self.slots.append(
                PipelineSlot(
                    stage=self.rank,
                    microbatch=index,
                    is_backward=is_backward,
                    begin_ms=1e3 * (begin - self._began),
                    end_ms=1e3 * (end - self._began),
                )
            )
            return result

        return noted


def with_explanation(record: PipelineSchedule) -> PipelineSchedule:
    """The record with the bubble that its own passes have by the schedule, if each takes what it
    took in the middle and is handed over in the measured time.
    """
    if not record.measured:
        return record
    forward, backward = (
        [
            median(
                slot.end_ms - slot.begin_ms
                for slot in record.measured
                if slot.stage == stage and slot.is_backward is is_backward
            )
            for stage in range(len(record.stages))
        ]
        for is_backward in (False, True)
    )
    slots = simulate(
        record.schedule, forward, backward, record.microbatches, record.hand_over_ms or 0.0
    )
    return record.model_copy(update={"explained_bubble": bubble(slots, len(record.stages))})


def core_wait_ms() -> float | None:
    """How long this thread was ready without a core so far; None where that is not counted."""
    try:
        return int(Path("/proc/thread-self/schedstat").read_text().split()[1]) / 1e6
    except (OSError, IndexError, ValueError):
        return None
