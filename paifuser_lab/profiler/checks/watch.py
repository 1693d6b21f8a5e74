"""Run a loop once and watch it: its operators, its models, its gradients.

Built on torch's profiler. The loop is the user's own: its exceptions propagate, and all hooks are
removed afterwards.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import torch
from torch import nn
from torch.autograd.profiler import profile, record_function
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ...errors import MeasureError
from ...model.watch import watching_outermost
from ...stopping import keep_when_stopped
from ...workload import QUIET
from .gradient_watch import GradientCounts, GradientWatch
from .model_watch import Denormals, ModelWatch, is_traced, watching_time
from .trace import LOOP, SYNCHRONIZE, Trace, trace_of


@dataclass(frozen=True)
class Memory:
    """Bytes of CUDA's allocator at one moment: in use, reserved, and inactive in split blocks."""

    allocated: int = 0
    reserved: int = 0
    split: int = 0


@dataclass
class LoopRun:
    """The observations of one run of a loop."""

    trace: Trace
    calls: int = 0
    rounds: int = 0  # calls of the most called model
    grown: int = 0
    optimizer_steps: int = 0
    training: dict[str, str] = field(default_factory=dict)
    gradients: dict[str, GradientCounts] = field(default_factory=dict)
    weights: Denormals = field(default_factory=Denormals)
    outputs: Denormals = field(default_factory=Denormals)
    memory: Memory | None = None
    is_interrupted: bool = False

    @property
    def is_training(self) -> bool:
        """Whether gradients were computed."""
        return self.trace.has_backward or self.optimizer_steps > 0

    @property
    def is_on_device(self) -> bool:
        return bool(self.trace.device)

    @property
    def steps(self) -> int:
        """The number of iterations: by the optimizer, else by the model."""
        return self.optimizer_steps or self.rounds


class _Watch:
    """The watchers of one loop."""

    def __init__(self) -> None:
        self.models, self.gradients = ModelWatch(), GradientWatch()
        self.memory: Memory | None = None
        self.thread = get_ident()

    @contextmanager
    def attached(self) -> Iterator[None]:
        hook = register_optimizer_step_pre_hook(self._before_step)
        try:
            with watching_outermost(self.models.enter, self._leave):
                yield
        finally:
            hook.remove()

    def _leave(self, model: nn.Module, output: Any) -> None:
        self.models.leave(model, output)
        self._measure_memory()

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        is_captured = _uses_cuda() and torch.cuda.is_current_stream_capturing()
        if get_ident() != self.thread or is_captured or is_traced():
            return
        with watching_time():
            self.gradients.count(optimizer)
        self._measure_memory()

    def _measure_memory(self) -> None:
        """Keep the moment of the highest use; after a step most memory is free again."""
        if not _uses_cuda():
            return
        with watching_time():
            now = torch.cuda.memory_stats()
            sizes = [
                now.get(f"{kind}_bytes.all.current", 0)
                for kind in ("allocated", "reserved", "inactive_split")
            ]
            self.memory = max(
                self.memory or Memory(), Memory(*sizes), key=lambda memory: memory.allocated
            )

    def result(self, trace: Trace, *, is_interrupted: bool) -> LoopRun:
        models = self.models
        return LoopRun(
            trace,
            calls=sum(models.calls.values()),
            rounds=max(models.calls.values(), default=0),
            grown=models.grown,
            optimizer_steps=max(self.gradients.steps.values(), default=0),
            training=models.training,
            gradients=self.gradients.by_name(list(models.models.values())),
            weights=models.weights(),
            outputs=models.outputs,
            memory=self.memory,
            is_interrupted=is_interrupted,
        )


def watch(loop: Callable[[], Any]) -> LoopRun:
    """Run the loop once and return the observations; its result is dropped, and an interrupt
    keeps the observations so far.
    """
    if torch.autograd.profiler._is_profiler_enabled:
        raise MeasureError(
            "A profiler is running already, and torch runs one at a time; call the checklist "
            "outside it."
        )
    watched = _Watch()
    device = "cuda" if torch.cuda.is_available() else None
    with QUIET, profile(use_device=device) as profiled, watched.attached(), record_function(LOOP):
        with keep_when_stopped() as ending:
            loop()
        _synchronize()
    return watched.result(trace_of(_events(profiled)), is_interrupted=ending.is_stopped)


def _events(profiled: Any) -> list[Any]:
    return list(profiled.kineto_results.events()) if profiled.kineto_results is not None else []


def _synchronize() -> None:
    if _uses_cuda():
        with record_function(SYNCHRONIZE):
            torch.cuda.synchronize()


def _uses_cuda() -> bool:
    """Whether CUDA is in use; the check does not initialise it."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
