"""Run a loop once and watch it: its operators, its models, its gradients. Stands on torch's
profiler.

The loop is the user's own: whatever it raises is raised on, and everything put in place to watch it
is gone afterwards.
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
from .model_watch import Denormals, ModelWatch, is_read_along, our_look
from .trace import LOOP, SETTLE, Trace, trace_of


@dataclass(frozen=True)
class Memory:
    """What CUDA's allocator held at one moment: in use, taken from the device, and split so that
    little fits into it.
    """

    allocated: int = 0
    reserved: int = 0
    split: int = 0


@dataclass
class Seen:
    """Observations of one run of a loop."""

    trace: Trace
    calls: int = 0
    rounds: int = 0  # calls of the model that was called most
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
        """Whether gradients were taken."""
        return self.trace.has_backward or self.optimizer_steps > 0

    @property
    def is_on_device(self) -> bool:
        return bool(self.trace.device)

    @property
    def steps(self) -> int:
        """How often the loop went round: by its optimizer, else by its model."""
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
        self._look_at_memory()

    def _before_step(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        is_captured = _uses_cuda() and torch.cuda.is_current_stream_capturing()
        if get_ident() != self.thread or is_captured or is_read_along():
            return
        with our_look():
            self.gradients.look(optimizer)
        self._look_at_memory()

    def _look_at_memory(self) -> None:
        """Keep the fullest moment; after a step most memory is free again and says little."""
        if not _uses_cuda():
            return
        with our_look():
            now = torch.cuda.memory_stats()
            found = [
                now.get(f"{kind}_bytes.all.current", 0)
                for kind in ("allocated", "reserved", "inactive_split")
            ]
            self.memory = max(
                self.memory or Memory(), Memory(*found), key=lambda one: one.allocated
            )

    def seen(self, trace: Trace, *, is_interrupted: bool) -> Seen:
        models = self.models
        return Seen(
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


def watch(loop: Callable[[], Any]) -> Seen:
    """Run the loop once and return the observations; its result is dropped, and an interrupt
    keeps what was seen until then.
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
        _settle()
    return watched.seen(trace_of(_events(profiled)), is_interrupted=ending.is_stopped)


def _events(profiled: Any) -> list[Any]:
    return list(profiled.kineto_results.events()) if profiled.kineto_results is not None else []


def _settle() -> None:
    if _uses_cuda():
        with record_function(SETTLE):
            torch.cuda.synchronize()


def _uses_cuda() -> bool:
    """Asks for nothing that would initialise CUDA where it is not used."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
