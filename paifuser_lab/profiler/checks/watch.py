"""Run a loop once and watch it: its operators, its models, the gradients that its optimizers use.

Built on torch's profiler. The loop is the user's own: its exceptions propagate, and all hooks are
removed afterwards.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from threading import get_ident
from typing import Any

import torch
from torch import Tensor, nn
from torch.autograd.profiler import profile, record_function
from torch.nn.modules.batchnorm import _BatchNorm
from torch.nn.modules.dropout import _DropoutNd
from torch.optim import Optimizer
from torch.optim.optimizer import register_optimizer_step_pre_hook

from ...errors import MeasureError, keep_when_stopped
from ...model.tensors import tensors_in
from ...model.watch import is_in_backward, watching_outermost
from ...workload import QUIET
from .trace import BACKWARD, LOOP, MODEL, SYNCHRONIZE, WATCHING, Trace, trace_of

FP16_SMALLEST = 2.0**-24  # 6e-8: half of it rounds to zero
FP16_LARGEST = 65504.0


@dataclass(frozen=True)
class GradientCounts:
    """Counts over one parameter's gradients in all steps."""

    values: int
    broken: int  # inf or NaN
    vanishing: int  # too small for fp16, and not zero
    exceeding: int  # too large for fp16
    zeros: int


@dataclass
class GradientWatch:
    """Counts for every parameter that an optimizer stepped with."""

    steps: Counter[int] = field(default_factory=Counter)  # by optimizer
    counts: dict[Tensor, Tensor] = field(default_factory=dict)  # by parameter

    def count(self, optimizer: Optimizer) -> None:
        """Count the values of all gradients that this step will use."""
        self.steps[id(optimizer)] += 1
        for group in optimizer.param_groups:
            for parameter in group["params"]:
                if parameter.grad is not None:
                    counts = _counted(parameter.grad)
                    before = self.counts.get(parameter)
                    self.counts[parameter] = counts if before is None else before + counts

    def by_name(self, models: Iterable[nn.Module]) -> dict[str, GradientCounts]:
        """The counts under the names that the models give their parameters."""
        trained = [model for model in models if next(model.parameters(), None) is not None]
        names: dict[Tensor, str] = {
            parameter: name
            if len(trained) == 1
            else f"{name} of model {number}, {type(model).__name__}"
            for number, model in enumerate(trained, 1)
            for name, parameter in model.named_parameters()
        }
        return {
            names.get(
                parameter, f"a parameter of shape {tuple(parameter.shape)} (number {index})"
            ): GradientCounts(*counts.tolist())
            for index, (parameter, counts) in enumerate(self.counts.items(), 1)
        }


@torch.no_grad()
def _counted(gradient: Tensor) -> Tensor:
    values = gradient.to_local() if hasattr(gradient, "to_local") else gradient
    values = values.coalesce().values() if values.is_sparse else values
    size = values.abs()
    finite = torch.isfinite(size)
    zeros = size == 0
    masks = [~finite, (size < FP16_SMALLEST) & ~zeros, (size > FP16_LARGEST) & finite, zeros]
    return torch.stack(
        [torch.full_like(finite, True, dtype=torch.int64).sum(), *(mask.sum() for mask in masks)]
    )


@dataclass
class ModelWatch:
    """Observations of the outermost calls of models, in order."""

    calls: Counter[nn.Module] = field(default_factory=Counter)
    grown: int = 0  # calls whose output can be differentiated
    # layers that were in training mode and depend on it
    training: dict[str, str] = field(default_factory=dict)
    _open: list[tuple[ExitStack, bool]] = field(default_factory=list)

    def enter(self, model: nn.Module) -> None:
        """An outermost call of a model begins."""
        stack, is_call = ExitStack(), not (is_in_backward() or is_traced())
        if is_call:
            with record_function(WATCHING):
                if model not in self.calls:
                    self.training |= training_layers(model)
                self.calls[model] += 1
            stack.enter_context(record_function(MODEL))
        self._open.append((stack, is_call))

    def leave(self, model: nn.Module, output: Any) -> None:
        """The call has returned or raised."""
        stack, is_call = self._open.pop()
        stack.close()
        if is_call:
            self.grown += any(leaf.requires_grad for leaf in tensors_in(output))


def training_layers(model: nn.Module) -> dict[str, str]:
    """The classes of the layers in training mode whose output differs from eval mode."""
    return {
        name or "itself": type(layer).__name__
        for name, layer in model.named_modules()
        if layer.training and _depends_on_mode(layer)
    }


def _depends_on_mode(layer: nn.Module) -> bool:
    share = layer.p if isinstance(layer, _DropoutNd) else getattr(layer, "dropout", 0.0)
    return isinstance(layer, _BatchNorm) or (isinstance(share, float) and share > 0)


def is_traced() -> bool:
    """Whether a tracer or a mode records every operator, which would include ours."""
    return torch._C._get_tracing_state() is not None or torch._C._len_torch_dispatch_stack() > 0


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
    memory: Memory | None = None
    is_interrupted: bool = False

    @property
    def is_training(self) -> bool:
        """Whether gradients were computed."""
        return bool(self.trace.named(BACKWARD)) or self.optimizer_steps > 0

    @property
    def is_on_device(self) -> bool:
        return bool(self.trace.device)

    @property
    def steps(self) -> int:
        """The number of iterations: by the optimizer, else by the model."""
        return self.optimizer_steps or self.rounds


class _Watch:
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
        with record_function(WATCHING):
            self.gradients.count(optimizer)
        self._measure_memory()

    def _measure_memory(self) -> None:
        """Keep the moment of the highest use; after a step most memory is free again."""
        if not _uses_cuda():
            return
        with record_function(WATCHING):
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
            gradients=self.gradients.by_name(models.calls),
            memory=self.memory,
            is_interrupted=is_interrupted,
        )


def watch(loop: Callable[[], Any]) -> LoopRun:
    """Run the loop once and return the observations; an interrupt keeps those so far."""
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
        if _uses_cuda():
            with record_function(SYNCHRONIZE):
                torch.cuda.synchronize()
    return watched.result(trace_of(_events(profiled)), is_interrupted=ending.is_stopped)


def _events(profiled: Any) -> list[Any]:
    return list(profiled.kineto_results.events()) if profiled.kineto_results is not None else []


def _uses_cuda() -> bool:
    """Whether CUDA is in use; the check does not initialise it."""
    return bool(torch.cuda.is_initialized())  # type: ignore[no-untyped-call]
