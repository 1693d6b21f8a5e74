"""Watch the training loop of this thread: its models, its optimizers' steps, its losses.

Steps are seen by torch's global hooks of optimizers; models by a global hook of modules, which is
only there until every optimizer's models are known; losses where backward begins.
"""

from __future__ import annotations

import functools
import math
from collections import deque
from collections.abc import Callable, Sequence
from threading import get_ident
from typing import Any, Protocol
from weakref import WeakKeyDictionary

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.nn.modules.module import register_module_forward_pre_hook
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)

from ..model.watch import is_in_backward
from .switches.base import weights_of

UNSCALED = "_loss_before_scaling"  # an attribute of a loss that a GradScaler has multiplied
PASS_OVER = 49  # steps of a loop at rest between two that are told of
MOST_LOSSES = 256  # held unread, as in a loop that updates its weights by hand
REMEDY = "with acceleration on; lab.disable() runs the loop without it"


class Listener(Protocol):
    """What is told of the loop."""

    def before_step(self, optimizer: Optimizer, *, has_closure: bool) -> bool: ...
    def after_step(self, optimizer: Optimizer) -> None: ...
    def begin_backward(self, losses: Sequence[Tensor]) -> None: ...
    def end_backward(self) -> None: ...


class Losses:
    """The losses where backward began, held until they are read, which waits for a GPU."""

    def __init__(self) -> None:
        self.held: deque[Tensor] = deque(maxlen=MOST_LOSSES)
        self.of_step: list[float] = []
        self.is_late = False  # a step has been taken with the first that is not finite
        self._late = 0  # how many of those held a step has been taken with

    def read(self) -> list[float]:
        losses = [float(loss) for loss in self.held]
        self.is_late = not all(map(math.isfinite, losses[: self._late]))
        self.held.clear()
        self._late = 0
        self.of_step += losses
        return losses

    def end_step(self) -> list[float]:
        """The mean loss of the step that ends, if one was read."""
        losses, self.of_step = self.of_step, []
        self._late = len(self.held)
        return [sum(losses) / len(losses)] if losses else []


class Watcher:
    """The hooks of one acceleration, in the thread that made it."""

    def __init__(self, listener: Listener) -> None:
        self.listener = listener
        self.thread = get_ident()
        self.losses = Losses()
        # since the search for models began, in order
        self.called: WeakKeyDictionary[nn.Module, None] = WeakKeyDictionary()
        self.has_autocast = False
        self._aside: dict[Optimizer, list[tuple[Tensor, Tensor]]] = {}
        self._end: Any = None  # the hooks of optimizers' steps
        self._begin: Any = None
        self._search: Any = None
        self._resting: tuple[Optimizer, ...] = ()
        self._passed = self._counted = 0  # steps of the first of them since one was told of
        self._has_losses = False
        self._backward: Callable[..., None] | None = None
        self._scale: tuple[Callable[..., Any], Callable[..., Any]] | None = None  # before, ours

    def start(self) -> None:
        self._end = register_optimizer_step_post_hook(self._after)
        self.watch(steps=True, losses=True)
        self.search()

    def stop(self) -> None:
        self.end_search()
        self.watch(steps=False, losses=False)
        if self._end is not None:
            self._end.remove()
            self._end = None
        self.losses.held.clear()
        self._aside.clear()
        self.pass_over(())

    def watch(self, *, steps: bool, losses: bool) -> None:
        """Watch from now on where optimizers' steps begin, and the losses, or neither."""
        if steps and self._begin is None:
            self._begin = register_optimizer_step_pre_hook(self._before)
        elif not steps and self._begin is not None:
            self._begin.remove()
            self._begin = None
        self._has_losses = losses
        if losses:
            self._watch_losses()
        else:
            self._leave_losses()

    def pass_over(self, optimizers: Sequence[Optimizer]) -> None:
        """Count the steps of the first of these optimizers from now on, and tell of one in many of
        them; the others' are not told of.
        """
        self._resting = tuple(optimizers)
        self._passed = self._counted = 0

    def take_passed(self) -> int:
        """How many steps have been passed over since this was asked."""
        new, self._counted = self._passed - self._counted, self._passed
        return new

    def _watch_losses(self) -> None:
        if self._backward is None:
            self._backward = torch.autograd.backward
            torch.autograd.backward = self._watched_backward  # type: ignore[assignment]
        if self._scale is None:
            self._scale = GradScaler.scale, _remembering(GradScaler.scale)
            GradScaler.scale = self._scale[1]  # type: ignore[method-assign]

    def _leave_losses(self) -> None:
        """Put back what was replaced; where somebody has replaced it since, it passes on."""
        if self._backward is not None and torch.autograd.backward == self._watched_backward:
            torch.autograd.backward, self._backward = self._backward, None
        if self._scale is not None and GradScaler.scale is self._scale[1]:
            GradScaler.scale, self._scale = self._scale[0], None  # type: ignore[method-assign]

    def search(self) -> None:
        """Note the modules that are called, from now on."""
        if self._search is None:
            self.has_autocast = False
            self._search = register_module_forward_pre_hook(self._note)

    def end_search(self) -> None:
        """Note them no more: a loop in its course pays nothing for it."""
        if self._search is not None:
            self._search.remove()
            self._search = None
        self.called.clear()

    @property
    def is_on(self) -> bool:
        return self._end is not None

    @property
    def is_searching(self) -> bool:
        """Whether called modules are noted."""
        return self._search is not None

    def models_of(self, optimizer: Optimizer) -> list[nn.Module]:
        """The outermost called modules that hold what an optimizer trains."""
        missing = set(map(id, weights_of(optimizer)))
        models = []
        for module in self.called:
            if own := missing & {id(weight) for weight in module.parameters()}:
                models.append(module)
                missing -= own
            if not missing:
                break
        return models

    def _is_here(self) -> bool:
        return get_ident() == self.thread and not torch.compiler.is_dynamo_compiling()

    def _note(self, module: nn.Module, args: Any) -> None:
        if torch.compiler.is_dynamo_compiling():
            return
        if torch.is_grad_enabled() and self._is_here() and not is_in_backward():
            self.called.setdefault(module)
            self.has_autocast |= has_autocast()

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not self._is_here():
            return
        closure = args[1] if len(args) > 1 else kwargs.get("closure")  # after the optimizer
        if self.listener.before_step(optimizer, has_closure=closure is not None):
            return
        gradients = [
            (weight, weight.grad) for weight in weights_of(optimizer) if weight.grad is not None
        ]
        self._aside[optimizer] = gradients
        for weight, _ in gradients:
            weight.grad = None  # such weights are passed over

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if optimizer in self._resting:
            is_first = optimizer is self._resting[0]
            if self._passed < PASS_OVER or not is_first:
                self._passed += is_first
                return
        for weight, gradient in self._aside.pop(optimizer, ()):
            weight.grad = gradient
        if self._is_here():
            self.listener.after_step(optimizer)  # takes what was passed over
            self._passed = self._counted = 0

    def _watched_backward(
        self, tensors: Tensor | Sequence[Tensor], *args: Any, **kwargs: Any
    ) -> None:
        backward = self._backward or torch.autograd.backward
        if not self._has_losses or not self._is_here():
            backward(tensors, *args, **kwargs)
            return
        losses = (tensors,) if isinstance(tensors, Tensor) else tuple(tensors)
        for tensor in losses:
            if tensor.numel() == 1:
                self.losses.held.append(getattr(tensor, UNSCALED, tensor).detach())
        self.listener.begin_backward(losses)
        try:
            backward(tensors, *args, **kwargs)
        except RuntimeError as error:
            error.add_note(REMEDY)
            raise
        self.listener.end_backward()


def _remembering(scale: Callable[..., Any]) -> Callable[..., Any]:
    """`GradScaler.scale`, whose result knows the loss that was scaled."""

    @functools.wraps(scale)
    def scale_and_remember(scaler: GradScaler, outputs: Any) -> Any:
        results = scale(scaler, outputs)
        is_several = isinstance(outputs, list | tuple)
        pairs = zip(outputs, results, strict=True) if is_several else [(outputs, results)]
        for output, result in pairs:
            if isinstance(result, Tensor) and result is not output:
                setattr(result, UNSCALED, output.detach())
        return results

    return scale_and_remember


def has_autocast() -> bool:
    """Whether autocast is on for a device."""
    return torch.is_autocast_enabled("cpu") or torch.is_autocast_enabled("cuda")
