"""Checkpointing under a memory limit: the peak and the time of a step, predicted and measured, for
the models of `bench train` at larger batches.
"""

from __future__ import annotations

from collections.abc import Sequence

import torch

from paifuser_lab.bench.each import measure_each
from paifuser_lab.errors import MeasureError
from paifuser_lab.machine import machine_label
from paifuser_lab.memory import predicted_peak
from paifuser_lab.planner.training import plan_checkpoints
from paifuser_lab.records import CheckpointPlan, Record, readable_bytes
from paifuser_lab.workload import Workload

from .train_models import MODELS

NAMES = ("gpt-like", "vit-s", "bert-small", "resnet18")
JOINED = 4  # batches of `bench train` in one, so that activations outweigh weights
SHARE = 0.6  # of the plain peak, which is the limit


class CheckpointsBench(Record):
    """The result of `python -m benchmarks checkpoints`."""

    machine: str
    share: float
    plans: tuple[CheckpointPlan, ...] = ()
    failures: dict[str, str] = {}

    @property
    def title(self) -> str:
        """The title of the table."""
        return f"steps of training within {self.share:.0%} of their peak on {self.machine}"

    def table(self) -> list[dict[str, str]]:
        """A row for each model."""
        return [
            {
                "model": plan.workload,
                "blocks": f"{len(plan.layers)} of {len(plan.blocks)}",
                "peak": f"{readable_bytes(plan.measured_plain_bytes)} → "
                f"{readable_bytes(plan.measured_bytes)}",
                "predicted": readable_bytes(plan.predicted_bytes),
                "limit": readable_bytes(plan.limit_bytes),
                "× as long": "–" if plan.longer is None else f"{plan.longer:.2f}",
                "predicted ×": f"{1 + plan.more_ms / plan.step_ms:.2f}",
            }
            for plan in self.plans
        ] or [{"model": "nothing was measured"}]

    @property
    def summary(self) -> str:
        """The failures, a line each."""
        return "\n".join(f"{name}: {why}" for name, why in self.failures.items())


def bench(
    names: Sequence[str] = (), *, share: float = SHARE, joined: int = JOINED
) -> CheckpointsBench:
    """Plan checkpoints for each model within this share of its plain peak, and measure both; a
    failure is recorded, and the next model is planned.
    """
    unknown = [name for name in names if name not in MODELS]
    if unknown:
        raise MeasureError(f"'{unknown[0]}' is not trained here; there are {', '.join(MODELS)}.")
    plans: list[CheckpointPlan] = []
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        failures = measure_each(
            tuple(names or NAMES), lambda name: plans.append(_planned(name, share, joined))
        )
    finally:
        torch.set_num_threads(before)
    return CheckpointsBench(
        machine=machine_label(), share=share, plans=tuple(plans), failures=failures
    )


def _planned(name: str, share: float, joined: int) -> CheckpointPlan:
    trained = MODELS[name]
    torch.manual_seed(0)
    batches = [trained.batch(step) for step in range(joined)]
    inputs, target = (torch.cat(parts) for parts in zip(*batches, strict=True))
    work = Workload(trained.make(), inputs, name=name, loss=trained.loss, train=[(inputs, target)])
    whole = predicted_peak(work, train=True, batch=len(inputs)).peak_bytes
    return plan_checkpoints(work, int(share * whole))
