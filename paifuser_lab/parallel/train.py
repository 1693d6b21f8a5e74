"""`lab.train`: in this process, or in several that train one model together."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import ParallelError, StepError
from ..progress import progress
from ..records import ParallelReport, TrainingRun
from ..training.hooks import Synchroniser
from ..training.run import SAVE_EVERY_S
from ..training.workloads import Monitor, loss_of, plan_of
from ..training.workloads import train as train_alone
from ..workload import Derived, Workload, outside_inference, workload_of
from ..workload.data import Batch, Batches
from . import launch
from .exchange import Exchange, Traffic, mean_gradients
from .group import TIMEOUT_S, Group, agree, facts_of, join, tell


@outside_inference
def train(
    subject: Workload | Derived,
    *,
    processes: int = 1,
    timeout_s: float = TIMEOUT_S,
    checkpoint: str | Path | None = None,
    save_every_s: float = SAVE_EVERY_S,
    monitor: Monitor | None = None,
    monitor_every_s: float = 1.0,
    log: str | Path | None = None,
    watch_every: int | None = None,
    should_stop: Callable[[], bool] | None = None,
    **options: Any,
) -> TrainingRun:
    """Train the model of a workload, in place, on its train data and by its loss.

    Options are the fields of `TrainPlan`: epochs, learning_rate, optimizer, schedule, warm_up,
    weight_decay, clip, precision, seed, react, patience, formats, fp32_until, weights, rounding,
    checkpointed and more. With `checkpoint`, a file, the training stores itself every
    `save_every_s` seconds, and the same call goes on from there to the same losses, to the bit; a
    file that is damaged or of another training is refused. `monitor` is called with the record so
    far, such as `lab.TrainingMonitor()`; `log` is a folder for TensorBoard. Every `watch_every`
    steps the gradients' ranges are noted by layer; 0 is never.

    With `processes` above 1 each computes its rows of every batch, and the gradients are averaged:
    where the loss is a mean over rows, the steps are those of one process, up to rounding. What
    each sent and waited for is in the record's `ranks`. One that fails or waits longer than
    `timeout_s` ends all, and the model is as it was; a checkpoint can be gone on from with any
    number of processes.
    """
    common: dict[str, Any] = {
        "checkpoint": checkpoint,
        "save_every_s": save_every_s,
        "monitor_every_s": monitor_every_s,
        "log": log,
        "watch_every": watch_every,
    }
    if processes == 1:
        return train_alone(subject, monitor=monitor, should_stop=should_stop, **common, **options)
    work = workload_of(subject)
    plan, _ = plan_of(options), loss_of(work)
    if work.device.type != "cpu":
        raise StepError(
            "processes above 1 train models on the CPU; under torchrun use DataParallel."
        )
    reports: dict[int, ParallelReport] = {}
    done = 0
    last: list[TrainingRun] = []  # one at most

    def told(rank: int, value: tuple[TrainingRun | None, ParallelReport]) -> None:
        nonlocal done
        record, reports[rank] = value
        if record is None:
            return
        last.clear()  # a monitor that raises is not called again
        shown.advance(len(record.losses) - done)
        done = len(record.losses)
        if monitor is not None:
            monitor(with_ranks(record, reports))
        last.append(record)

    own = Workload(
        work.model, work.inputs, name=work.name, loss=work.loss, train=work.train,
        test=work.test, metric=work.metric,
    )  # fmt: skip
    with progress("training", plan.epochs * Batches(own.train, own.device).count) as shown:
        try:
            results = launch.run(
                _train_rank,
                own,
                common | options,
                processes=processes,
                timeout_s=timeout_s,
                on_told=told,
                should_stop=should_stop,
            )
        except BaseException:
            if monitor is not None and last and last[0].is_running:
                ended = last[0].model_copy(update={"is_running": False})
                monitor(with_ranks(ended, reports))
            raise
    record, state, _ = results[0]
    work.variants.clear()  # they are of the weights before
    with torch.no_grad():
        for name, value in work.model.state_dict().items():
            value.copy_(state[name])
    record = with_ranks(record, {rank: result[2] for rank, result in enumerate(results)})
    if monitor is not None:
        monitor(record)
    return record


class BatchShares(Synchroniser):
    """Each rank computes its rows of every batch, so that the mean of the gradients is that of the
    whole batch: the training ends as in one process, but for what depends on a batch's other rows,
    as batch-norm does, and for random numbers.
    """

    def __init__(self, group: Group) -> None:
        self.group, self.traffic, self.stores = group, Traffic(), group.rank == 0
        self.exchange = Exchange(group, self.traffic)

    def part_of(self, batch: Batch) -> tuple[Batch, float]:
        """The rows of this rank, and the factor that gives the mean over all rows."""
        rows, (rank, world) = batch.examples, (self.group.rank, self.group.world)
        if rows < world:
            raise ParallelError(
                f"a batch of {rows} examples is too small for {world} processes; take larger "
                "batches, or fewer processes."
            )
        first, last = rank * rows // world, (rank + 1) * rows // world

        def share(tensor: Tensor) -> Tensor:
            return tensor[first:last] if tensor.ndim and len(tensor) == rows else tensor

        target = pytree.tree_map_only(Tensor, share, batch.target)
        return Batch(batch.inputs.map(share), target), (last - first) * world / rows

    def mean_loss(self, loss: float) -> float:
        """The loss of the whole batch."""
        value = torch.tensor(loss, dtype=torch.float64, device=self.group.device)
        return float(self.exchange.mean(value))

    def mean_gradients(self, model: nn.Module, weights: Sequence[Tensor]) -> None:
        """Average the gradients; the step is counted."""
        mean_gradients(self.exchange, weights, model.buffers())
        self.traffic.end_step()


def with_ranks(record: TrainingRun, reports: dict[int, ParallelReport]) -> TrainingRun:
    """The record of rank 0, with what each rank sent and waited for."""
    ranks = tuple(reports[rank] for rank in sorted(reports))
    return record.model_copy(update={"ranks": ranks})


def _train_rank(
    work: Workload, options: dict[str, Any]
) -> tuple[TrainingRun, dict[str, Tensor], ParallelReport]:
    """What each process does: all train and evaluate, rank 0 stores and records."""
    group = join()
    agree(group, {"the options": sorted(options.items(), key=str), **facts_of(work.model)})
    shares = BatchShares(group)

    def monitor(record: TrainingRun) -> None:
        tell((record if group.rank == 0 else None, report_of(shares)))

    if group.rank:
        options = {**options, "log": None}
    record = train_alone(work, monitor=monitor, synchroniser=shares, **options)
    state = work.model.state_dict() if group.rank == 0 else {}
    return record, {name: value.cpu() for name, value in state.items()}, report_of(shares)


def report_of(shares: BatchShares) -> ParallelReport:
    """What this rank has sent, waited for and computed so far."""
    return ParallelReport(
        strategy="rows of each batch divided, gradients averaged in fp32",
        rank=shares.group.rank,
        world=shares.group.world,
        **shares.traffic.steps(),
    )
