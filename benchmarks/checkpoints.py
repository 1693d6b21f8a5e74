"""Checkpointing under a memory limit: the models of `benchmarks train` at larger batches."""

from __future__ import annotations

from typing import Annotated, ClassVar

import torch
import typer

from paifuser_lab.bench.runner import (
    BenchRecord,
    Columns,
    Names,
    check_known,
    measured_rows,
)
from paifuser_lab.bench.text import listed, minus, percent, times
from paifuser_lab.machine import threads
from paifuser_lab.memory import predicted_peak
from paifuser_lab.planner.training import plan_checkpoints
from paifuser_lab.records import CheckpointPlan, readable_bytes
from paifuser_lab.workload import Workload

from .train_models import MODELS

NAMES = ("gpt-like", "vit-s", "bert-small", "resnet18")
JOINED = 4  # batches of `benchmarks train` in one, so that activations outweigh weights


class CheckpointsBench(BenchRecord):
    """The result of `python -m benchmarks checkpoints`."""

    caption = "steps of training within {0.share:.0%} of their peak on {0.machine}"
    share: float
    plans: tuple[CheckpointPlan, ...] = ()
    row_field = "plans"
    columns: ClassVar[Columns] = {
        "model": "workload",
        "blocks": lambda plan: f"{len(plan.layers)} of {len(plan.blocks)}",
        "peak": lambda plan: (
            f"{readable_bytes(_plain_bytes(plan))} → {readable_bytes(plan.measured_bytes)}"
        ),
        "predicted": lambda plan: readable_bytes(plan.predicted_bytes),
        "saved": lambda plan: (
            "–"
            if plan.measured_bytes is None
            else minus(percent(plan.measured_bytes / _plain_bytes(plan) - 1, 0))
        ),
        "a step takes": lambda plan: (
            "–" if plan.longer is None else times(plan.longer, plan.longer_interval)
        ),
        "predicted ": lambda plan: (  # the time; a page shows headers without spaces around
            times(1 + plan.more_ms / plan.step_ms) if plan.step_ms else "–"
        ),
    }

    @property
    def past(self) -> str:
        """The models that stay past the limit, with their shares of the plain peak."""
        return listed(
            [
                f"{plan.workload} stays at {percent(left / _plain_bytes(plan), 0)}"
                for plan in self.plans
                if (left := plan.measured_bytes or plan.predicted_bytes) > plan.limit_bytes
            ]
        )


def _plain_bytes(plan: CheckpointPlan) -> int:
    return plan.measured_plain_bytes or plan.plain_bytes


def bench(
    names: Names = None,
    *,
    share: Annotated[
        float, typer.Option(help="Of the plain peak, which is the limit.", min=0.01, max=1)
    ] = 0.6,
) -> CheckpointsBench:
    """Checkpoint blocks of models within a memory limit: peak and time, predicted and measured."""
    check_known(names or (), MODELS)
    with threads(1):
        measured = measured_rows(names or NAMES, lambda name: [_planned(name, share)])
    return CheckpointsBench(share=share, plans=measured["rows"], failures=measured["failures"])


def _planned(name: str, share: float) -> CheckpointPlan:
    trained = MODELS[name]
    torch.manual_seed(0)
    batches = [trained.batch(step) for step in range(JOINED)]
    inputs, target = (torch.cat(parts) for parts in zip(*batches, strict=True))
    work = Workload(trained.make(), inputs, name=name, loss=trained.loss, train=[(inputs, target)])
    whole = predicted_peak(work, train=True, batch=len(inputs)).peak_bytes
    return plan_checkpoints(work, int(share * whole))
