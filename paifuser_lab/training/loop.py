"""The training loop: deterministic for a seed, can be interrupted at any step and resumed.

The random numbers of a step depend on seed, epoch and step alone, the learning rate on the share of
steps done and, like the precision, on the losses so far: so weights, buffers, optimizer and losses
are the whole state, and a run that was killed and resumed ends with the same weights, on a CPU to
the bit, as an uninterrupted one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import torch
from torch import nn

from ..progress import progress
from ..workload.data import Batches
from .course import Trained
from .hooks import BeforeStep, Hooks, Objective
from .learner import Learner
from .plan import Training
from .resume import CheckpointFile
from .run import Run


def train(
    model: nn.Module,
    batches: Iterable[Any] | Batches,
    objective: Objective,
    plan: Training,
    *,
    extra: nn.Module | None = None,
    checkpoint_file: CheckpointFile | None = None,
    should_stop: Callable[[], bool] | None = None,
    before_step: BeforeStep | None = None,
    what: str = "training",
) -> Trained:
    """Train a model in place, and `extra` along with it; frozen parameters stay as they are.

    When it ends early, by an error or a stop, the last valid checkpoint is in the model and in
    `checkpoint_file`, from where the same call resumes. Everything that training changes has to be
    a parameter or a buffer. `before_step` is called with the share of the steps that is done, in
    training mode, and may change modes. Random state, modes and gradients are restored afterwards.
    `what` names the training where its progress is shown.
    """
    hooks = Hooks(should_stop or Hooks.should_stop, before_step or Hooks.before_step)
    run = run_of(model, batches, objective, plan, extra, checkpoint_file, hooks, what)
    return run.trained()


def run_of(
    model: nn.Module,
    batches: Iterable[Any] | Batches,
    objective: Objective,
    plan: Training,
    extra: nn.Module | None,
    checkpoint_file: CheckpointFile | None,
    hooks: Hooks,
    what: str = "training",
) -> Run:
    """Train as `train` does; the finished run has all that was recorded."""
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    parts = [model] if extra is None else [model, extra]
    with _training_mode(parts), torch.inference_mode(False), torch.enable_grad():
        batches = Batches.of(batches, device)
        learner = Learner(model, extra, plan, device)
        try:
            run = Run(learner, batches, objective, checkpoint_file, hooks)
            if not run.is_over:
                with progress(what, run.steps) as shown:
                    run.learn(shown)
        finally:
            learner.release()
    return run


@contextmanager
def _training_mode(parts: list[nn.Module]) -> Iterator[None]:
    """Set training mode; modes and gradients are restored on exit."""
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
