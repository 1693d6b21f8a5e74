"""The training loop: deterministic for a seed, ended at any step, gone on with from there.

The random numbers of a step come from seed, epoch and step alone, the learning rate from how much
is done: so weights, buffers and optimizer are all there is to keep, and a run that was killed ends
with the same weights, on a CPU to the bit, as one that was not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..progress import progress
from ..workload.data import Batches
from .learner import Learner
from .plan import Training
from .result import Trained
from .resume import Kept
from .run import BeforeStep, Hooks, Objective, OnEpoch, Run


def train(
    model: nn.Module,
    batches: Iterable[Any] | Batches,
    objective: Objective,
    plan: Training,
    *,
    extra: nn.Module | None = None,
    kept: Kept | None = None,
    should_stop: Callable[[], bool] | None = None,
    on_epoch: OnEpoch | None = None,
    before_step: BeforeStep | None = None,
) -> Trained:
    """Train a model in place, and `extra` along with it; frozen parameters stay as they are.

    Whatever ends it early leaves the last sound moment in the model and in `kept`, from where the
    same call goes on. All that training changes has to be a parameter or a buffer. `before_step` is
    called with the share of the steps that is done, in training mode, and may change modes. Random
    state, modes and gradients are afterwards as they were.
    """
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    parts = [model] if extra is None else [model, extra]
    hooks = Hooks(
        should_stop or Hooks.should_stop,
        on_epoch or Hooks.on_epoch,
        before_step or Hooks.before_step,
    )
    with _as_before(parts), torch.inference_mode(False), torch.enable_grad():
        run = Run(
            Learner(model, extra, plan, device), Batches.of(batches, device), objective, kept, hooks
        )
        with progress("training", plan.epochs * run.batches.count) as shown:
            run.learn(shown)
    return run.trained()


@contextmanager
def _as_before(parts: list[nn.Module]) -> Iterator[None]:
    """In training mode; modes and gradients are put back whatever happens."""
    modes = [(module, module.training) for part in parts for module in part.modules()]
    gradients = [(weight, weight.grad) for part in parts for weight in part.parameters()]
    try:
        for part in parts:
            part.train()
        for weight, _ in gradients:
            weight.grad = None
        yield
    finally:
        for module, mode in modes:
            module.training = mode
        for weight, gradient in gradients:
            weight.grad = gradient
