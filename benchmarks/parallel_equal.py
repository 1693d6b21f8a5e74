"""Every strategy against one process: the same batches, and how far apart the weights end."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from pydantic import Field
from torch import Tensor, nn

from paifuser_lab.bench.runner import BenchRecord, Keep
from paifuser_lab.errors import keep_when_stopped
from paifuser_lab.parallel import DataParallel, pipeline, run, tell, tensor_parallel
from paifuser_lab.parallel.averaging import POWER_SGD_FROM
from paifuser_lab.records import Record
from paifuser_lab.workload import Workload

from .parallel_models import MODELS, learn

STEPS, EVERY, MICROBATCHES = 20, 8, 4
EXACT = 1e-4  # rounding of fp32 in another order, after steps with momentum
WORLDS = (2, 4)

Train = Callable[[Workload, int], nn.Module]  # the whole model after so many steps


@dataclass(frozen=True)
class Strategy:
    """A way to train, the training in one process that it equals, and how nearly."""

    train: Train
    tolerance: float
    every: int = 1  # steps between averages of the weights
    is_data: bool = True  # each process has its part of a batch
    microbatches: int = 1
    more_steps: int = 0


class EqualRow(Record):
    """One strategy against one process. The difference is that of the weights, or of batch-norm's
    statistics where it is larger, as a share of how far the training moved them.
    """

    model: str
    processes: int
    strategy: str
    steps: int
    difference: float
    tolerance: float
    spread: float = Field(description="the largest difference between two processes' weights")

    @property
    def is_equal(self) -> bool:
        """Whether it is within its tolerance, and all processes end with the same weights."""
        return self.difference <= self.tolerance and self.spread == 0


class EqualBench(BenchRecord):
    """The result of `python -m benchmarks parallel --equal`."""

    rows: tuple[EqualRow, ...] = ()

    @property
    def is_good(self) -> bool:
        """Whether every strategy equals one process."""
        return bool(self.rows) and all(row.is_equal for row in self.rows)

    @property
    def title(self) -> str:
        """How many strategies equal one process."""
        equal = sum(row.is_equal for row in self.rows)
        return f"{equal} of {len(self.rows)} trainings on {self.machine} equal one process"

    def table(self) -> list[dict[str, str]]:
        """A row for each strategy, a column for each model and number of processes."""
        lines: dict[str, dict[str, str]] = {}
        for row in self.rows:
            line = lines.setdefault(
                row.strategy,
                {"strategy": row.strategy, "steps": str(row.steps),
                 "tolerance": f"{row.tolerance:g}"},
            )  # fmt: skip
            mark = "" if row.is_equal else " (not equal)"
            line[f"{row.model}, {row.processes}"] = f"{row.difference:.1g}{mark}"
        return list(lines.values()) or [{"strategy": "nothing was trained"}]

    @property
    def summary(self) -> str:
        """What the figures are."""
        spread = max((row.spread for row in self.rows), default=0.0)
        return (
            "differences from one process's weights, as a share of how far they moved; the "
            f"ranks of one training differ by {spread:.1g} at most"
        )


def bench(keep: Keep = lambda record: None) -> EqualBench:
    """Train each model by each strategy on each number of processes, and in one process alike.

    Stopped after a row, it returns what there is.
    """
    record = EqualBench()

    def told(rank: int, row: EqualRow) -> None:
        nonlocal record
        if rank == 0:
            record = record.model_copy(update={"rows": (*record.rows, row)})
            keep(record)

    with keep_when_stopped(lambda: bool(record.rows)):
        for world in WORLDS:
            run(on_each, processes=world, threads=1, on_told=told)
    return record


def on_each() -> None:
    """What each process of one launch takes part in."""
    for model in MODELS:
        for name in STRATEGIES:
            tell(compared(model, name, STEPS))


def compared(model: str, name: str, steps: int) -> EqualRow:
    """Train by a strategy and in one process, and compare the weights of all ranks."""
    strategy, world = STRATEGIES[name], dist.get_world_size()
    steps += strategy.more_steps
    work = MODELS[model]()
    trained = vectors(strategy.train(work, steps))
    apart = [0.0]
    if dist.get_rank() == 0:  # the others wait
        expected = alone(
            model,
            steps,
            replicas=world if strategy.is_data else 1,
            microbatches=strategy.microbatches,
            every=strategy.every,
        )
        rows = zip(trained, vectors(expected), vectors(MODELS[model]().model), strict=True)
        apart += [
            float((one - other).norm() / (other - start).norm())
            for one, other, start in rows
            if len(one)
        ]
    first = torch.cat(trained)
    dist.broadcast(first, 0)
    spread = (torch.cat(trained) - first).abs().max()
    dist.all_reduce(spread, op=dist.ReduceOp.MAX)
    return EqualRow(
        model=work.name,
        processes=world,
        strategy=name,
        steps=steps,
        difference=max(apart),
        tolerance=strategy.tolerance,
        spread=float(spread),
    )


def vectors(model: nn.Module) -> tuple[Tensor, Tensor]:
    """All weights of a model in a row, and all statistics, such as those of batch-norm."""
    empty = torch.zeros(0)
    weights = [weight.detach().reshape(-1) for weight in model.parameters()]
    buffers = [value.reshape(-1) for value in model.buffers() if value.is_floating_point()]
    return torch.cat([empty, *weights]), torch.cat([empty, *buffers])


def descent(weights: Any) -> torch.optim.Optimizer:
    """Gradient descent with momentum, whose steps are as long as the gradient says."""
    return torch.optim.SGD(weights, lr=0.05, momentum=0.9)


def alone(
    model: str, steps: int, *, replicas: int = 1, microbatches: int = 1, every: int = 1
) -> nn.Module:
    """Train in one process. With `replicas` each has its part of a batch, and gradients are
    averaged, or weights every so many steps, one after another in this process.
    """
    works = [MODELS[model]() for _ in range(replicas)]
    models = [work.model.train() for work in works]
    optimizers = [descent(model.parameters()) for model in models]
    loss, batches = works[0].loss, works[0].train
    assert loss is not None and batches is not None
    for step in range(steps):
        inputs, target = batches[step % len(batches)]
        parts = zip(inputs.chunk(replicas), target.chunk(replicas), strict=True)
        for one, (x, y) in zip(models, parts, strict=True):
            for own, own_target in zip(x.chunk(microbatches), y.chunk(microbatches), strict=True):
                (loss(one(own), own_target) / microbatches).backward()  # type: ignore[no-untyped-call]
        if every == 1:
            average([[weight.grad for weight in one.parameters()] for one in models])
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        if every > 1 and is_averaged(step + 1, every):
            average([[*one.parameters(), *one.buffers()] for one in models])
    average([[*one.parameters(), *one.buffers()] for one in models])
    return models[0]


def is_averaged(steps: int, every: int) -> bool:
    """Whether weights are averaged after so many steps: 1, 2, 4 … at first."""
    return steps in (1, 2, 4, 8, 16, 32, 64) if steps < every else steps % every == 0


@torch.no_grad()
def average(rows: Sequence[Sequence[Any]]) -> None:
    """Put the mean over models in place of each floating-point value."""
    for values in zip(*rows, strict=True):
        if values[0].is_floating_point() and len(values) > 1:
            mean = torch.stack([value.detach() for value in values]).mean(0)
            for value in values:
                value.copy_(mean)


def by_data(**options: Any) -> Train:
    """Train by `DataParallel`, its optimizer found at its first step."""

    def train(work: Workload, steps: int) -> nn.Module:
        strategy = DataParallel(**options)
        model = strategy.prepare(work.model.train())
        optimizer = descent(model.parameters())
        learn(work, model, optimizer, range(steps), (dist.get_world_size(), dist.get_rank()))
        return strategy.finish()

    return train


def by_blocks(work: Workload, steps: int) -> nn.Module:
    """Train with attention and MLP blocks divided."""
    divided = tensor_parallel(work)
    learn(work, work.model, descent(work.model.train().parameters()), range(steps))
    return divided.whole_model()


def by_stages(schedule: str) -> Train:
    """Train in a pipeline."""

    def train(work: Workload, steps: int) -> nn.Module:
        stage = pipeline(work, schedule=schedule, microbatches=MICROBATCHES, begins="equal")
        optimizer = descent(stage.parameters())
        assert work.train is not None
        for step in range(steps):
            stage.step(*work.train[step % len(work.train)])
            optimizer.step()
            optimizer.zero_grad()
        return stage.whole_model()

    return train


def _piped(schedule: str) -> Strategy:
    return Strategy(by_stages(schedule), EXACT, is_data=False, microbatches=MICROBATCHES)


STRATEGIES: dict[str, Strategy] = {
    "DDP": Strategy(by_data(sync_frequency=1, gradient_compression=False), EXACT),
    "DDP, bf16": Strategy(by_data(sync_frequency=1), 0.05),
    "DDP, PowerSGD": Strategy(
        by_data(sync_frequency=1, gradient_compression="powersgd"),
        0.25,
        more_steps=POWER_SGD_FROM,  # until then it sends gradients as they are
    ),
    f"local {EVERY}": Strategy(
        by_data(sync_frequency=EVERY, gradient_compression=False), EXACT, every=EVERY
    ),
    f"local {EVERY}, int8 differences": Strategy(
        by_data(sync_frequency=EVERY), 0.1, every=EVERY
    ),
    "ZeRO": Strategy(by_data(zero_redundancy_optimizer=True, gradient_compression=False), EXACT),
    "FSDP2": Strategy(by_data(shard="full", gradient_compression=False), EXACT),
    "tensor parallel": Strategy(by_blocks, EXACT, is_data=False),
    "pipeline, gpipe": _piped("gpipe"),
    "pipeline, 1f1b": _piped("1f1b"),
}  # fmt: skip
