"""Train a workload: `lab.train(work, epochs=…)` changes its model and returns what was recorded."""

from __future__ import annotations

import time
from collections.abc import Callable
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..arguments import check_count, check_seconds, checked_options
from ..errors import StepError
from ..machine import machine_label
from ..measure.pages import peak_resident_bytes, resident_bytes, restart_peak
from ..records import GradientRange, TrainingEvent, TrainingRun
from ..workload import Derived, Inputs, Loss, Workload, outside_inference, workload_of
from ..workload.data import Batches
from .fingerprints import data_fingerprint, layers_fingerprint, loss_name, loss_value
from .history import StepFacts
from .hooks import Hooks, Objective, Synchroniser
from .loop import run_of
from .plan import TrainPlan
from .precision import LOWER, to_fp32
from .resume import CheckpointFile, NamedCheckpointFile
from .run import SAVE_EVERY_S, Run
from .tensorboard import TensorBoardLog

HASHED_BYTES = 256 << 20  # of the train data, by which a checkpoint knows them
MOST_RANGES = 48  # steps of a training whose gradients' ranges are noted
Monitor = Callable[[TrainingRun], None]
COLUMNS = {
    "rates": "rate",
    "scales": "scale",
    "overflow_shares": "overflow",
    "underflow_shares": "underflow",
    "gradient_norms": "norm",
    "step_ms": "step_ms",
    "wait_ms": "wait_ms",
    "is_lower": "is_lower",
    "is_skipped": "is_skipped",
}


@outside_inference
def train(
    subject: Workload | Derived,
    *,
    checkpoint: str | Path | None = None,
    save_every_s: float = SAVE_EVERY_S,
    monitor: Monitor | None = None,
    monitor_every_s: float = 1.0,
    log: str | Path | None = None,
    watch_every: int | None = None,
    should_stop: Callable[[], bool] | None = None,
    synchroniser: Synchroniser | None = None,
    **options: Any,
) -> TrainingRun:
    """Train the model of a workload in this process; options are those of `lab.train`, and
    `synchroniser` is what keeps it equal to others that train the same model.
    """
    work = workload_of(subject)
    plan, loss = plan_of(options), loss_of(work)
    _check_metric(work, plan)
    check_seconds(save_every_s)
    check_seconds(monitor_every_s)
    if watch_every is not None:
        check_count("watch_every", watch_every, least=0, error=StepError)
    _check_dtypes(work.model)
    batches = Batches(work.train, work.device)
    steps = plan.epochs * batches.count
    file = None if checkpoint is None else named_file(checkpoint, work, plan, batches)
    before, watch = work.evaluate(), _PeakWatch(work.device)
    with ExitStack() as stack:
        monitors = [] if monitor is None else [monitor]
        if log is not None:
            monitors.append(stack.enter_context(TensorBoardLog(log)))
        teller = _Teller(work, monitors, monitor_every_s, before, watch)
        hooks = Hooks(
            should_stop=should_stop or Hooks.should_stop,
            metric=partial(_metric, work) if plan.stop_on == "metric" else Hooks.metric,
            smaller_is_better=work.smaller_is_better,
            on_step=teller,
            save_every_s=save_every_s,
            synchroniser=synchroniser or Synchroniser(),
            watch_every=-(-steps // MOST_RANGES) if watch_every is None else watch_every,
        )
        work.variants.clear()  # they are of the weights before
        try:
            run = run_of(work.model, batches, objective_of(loss), plan, None, file, hooks)
        except BaseException:
            if teller.run is not None:  # at its last checkpoint, where it is restored
                teller.tell(teller.run)
            raise
        return teller.tell(run, is_over=True)


def _check_dtypes(model: nn.Module) -> None:
    """Refuse weights that are stored in 16 bits, in which small updates are lost."""
    for name, weight in model.named_parameters():
        if weight.requires_grad and weight.dtype in LOWER.values():
            raise StepError(
                f"'{name}' is {str(weight.dtype).removeprefix('torch.')}, in which small updates "
                "are lost; train model.float(), and in half the memory with weights='bf16', "
                "rounding='kahan'."
            )


def _check_metric(work: Workload, plan: TrainPlan) -> None:
    if plan.stop_on == "metric" and (work.metric is None or work.test is None):
        raise StepError(
            f"{work.name} has no metric on test data to stop on; give the workload both, or leave "
            "stop_on out, which watches the mean loss."
        )


def _metric(work: Workload) -> float | None:
    """The metric in the middle of a training, whose weights may be in 16 bits."""

    def with_outputs_in_fp32(*args: Any, **kwargs: Any) -> Any:
        return pytree.tree_map_only(Tensor, to_fp32, work.model(*args, **kwargs))

    return work.evaluate(with_outputs_in_fp32)


def plan_of(options: dict[str, Any]) -> TrainPlan:
    """The options as a plan; an invalid one is refused in a sentence."""
    return checked_options(TrainPlan, options, "a training", StepError)


def named_file(
    path: str | Path, work: Workload, plan: TrainPlan, batches: Batches
) -> CheckpointFile:
    """The checkpoint file of the user's, with what its training depends on; of large data, with
    their beginning.
    """
    loss = loss_of(work)
    known = {
        "torch": torch.__version__,
        "model": type(work.model).__name__,
        "layers": layers_fingerprint(work.model),
        "batches": batches.count,
        "train data": data_fingerprint(batches, most_bytes=HASHED_BYTES),
        "loss": loss_name(loss),
        "values of the loss": loss_value(loss, work.model, batches),
    }
    return NamedCheckpointFile(path, known | plan.model_dump(mode="json"))


def record_of(
    work: Workload,
    run: Run,
    *,
    metric_before: float | None,
    metric: float | None,
    peak_bytes: int | None,
    is_running: bool,
) -> TrainingRun:
    """What a training has recorded so far."""
    history = run.course.history
    columns = {
        name: tuple(getattr(row, column) for row in history.rows)
        for name, column in COLUMNS.items()
    }
    trained = run.trained()
    return TrainingRun(
        workload=work.name,
        machine=machine_label(),
        options=run.plan.model_dump(mode="json"),
        losses=tuple(run.losses),
        **columns,
        epoch_ends=tuple(history.epoch_ends),
        metrics=tuple(history.metrics),
        steps=run.steps,
        layers=tuple(run.layers),
        ranges=tuple(
            GradientRange(step=step, counts=tuple(map(tuple, counts.tolist())))
            for step, counts in zip(history.range_steps, history.ranges, strict=True)
        ),
        events=tuple(TrainingEvent(step=step, what=what) for step, what in run.course.marks),
        examples=int(sum(row.examples for row in history.rows)),
        seconds=_seconds(history.rows),
        peak_bytes=peak_bytes,
        metric_name=work.metric_name,
        metric_before=metric_before,
        metric=metric,
        began_at=run.began_at,
        notes=_notes(run, trained.notes),
        is_running=is_running,
    )


def _seconds(rows: list[StepFacts]) -> float:
    return sum(row.step_ms + row.wait_ms for row in rows) / 1e3


def _notes(run: Run, notes: tuple[str, ...]) -> tuple[str, ...]:
    went_on = f"went on from step {run.began_at}, where an earlier run ended"
    if run.was_done:
        went_on = "an earlier run had finished it; nothing was trained anew"
    return (*([went_on] if run.began_at else []), *notes)


def objective_of(loss: Loss) -> Objective:
    """The workload's loss for a batch; outputs in 16 bits are cast to fp32 before it."""

    def objective(model: nn.Module, inputs: Inputs, target: Any) -> Tensor:
        return loss(pytree.tree_map_only(Tensor, to_fp32, inputs(model)), target)

    return objective


def loss_of(work: Workload) -> Loss:
    """The workload's loss; raises where it or the train data are missing."""
    missing = [name for name in ("loss", "train") if getattr(work, name) is None]
    if missing or work.loss is None:
        raise StepError(
            f"{work.name} has no {' and no '.join(missing)}; give the workload both: "
            "Workload(model, inputs, loss=…, train=[(inputs, target), …])."
        )
    return work.loss


@dataclass
class _Teller:
    """Calls the monitors with the record so far, seconds apart."""

    work: Workload
    monitors: list[Monitor]
    every_s: float
    before: float | None  # the metric
    watch: _PeakWatch
    told: float = field(default_factory=time.monotonic)
    run: Run | None = None

    def __call__(self, run: Run) -> None:
        self.run = None  # a monitor that raises is not called again
        if self.monitors and time.monotonic() - self.told >= self.every_s:
            self.tell(run, is_running=True)
            self.told = time.monotonic()
        self.run = run

    def tell(self, run: Run, *, is_running: bool = False, is_over: bool = False) -> TrainingRun:
        peak_bytes = self.watch.peak_bytes()  # without what the metric takes
        record = record_of(
            self.work,
            run,
            metric_before=self.before,
            metric=self.work.evaluate() if is_over else None,
            peak_bytes=peak_bytes,
            is_running=is_running,
        )
        for monitor in self.monitors:
            monitor(record)
        return record


class _PeakWatch:
    """The most memory that is held from now on, above what is held now."""

    def __init__(self, device: torch.device) -> None:
        self.device = device
        if device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(device)
            self.before = torch.cuda.memory_allocated(device)
        else:
            self.is_known, self.before = restart_peak(), resident_bytes()

    def peak_bytes(self) -> int | None:
        """The peak; None where the system does not count it, or where memory that the process had
        kept from earlier was enough.
        """
        if self.device.type == "cuda":
            return torch.cuda.max_memory_allocated(self.device) - self.before
        peak = peak_resident_bytes() if self.is_known else None
        return None if peak is None or peak <= self.before else peak - self.before
