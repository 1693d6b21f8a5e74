"""The call of an accelerated model, and where a loss that is not finite began in it."""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterable
from threading import get_ident
from typing import Any, Protocol

import torch
from torch import nn

from ..model.watch import ATTRIBUTE, describe, first_nan, has_nan, is_in_backward
from ..training.checkpointing import saved_buffers
from ..training.observe import is_not_finite
from ..workload import Inputs, known_inputs, note_inputs
from .switches.base import Call


class Owner(Protocol):
    """What an accelerated call belongs to."""

    def note_evaluation(self) -> None: ...
    def recover(self, call: AcceleratedCall, error: Exception, again: Callable[[], Any]) -> Any: ...


class AcceleratedCall:
    """Stands in for a module's call; copies and files of the module do not have it.

    It is what `nn.Module.compile` sets, so that neither the class nor its `forward` is touched.
    """

    is_of_acceleration = True

    def __init__(self, model: nn.Module, owner: Owner) -> None:
        self.model, self.owner = model, owner
        self.before: Callable[..., Any] | None = None
        self.mode = model.training
        self.thread = get_ident()
        self.run: Call | None = None  # in training; None: as it is
        self.last: tuple[tuple[Any, ...], dict[str, Any]] | None = None
        self._is_inside, self._is_on, self._is_proven = False, True, False
        self._is_placed = False
        self._inputs = known_inputs(model)  # of whoever asks for them once this has gone
        self.place()

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        plain = self.before or self.model._call_impl
        is_foreign = self._is_inside or not self._is_on or get_ident() != self.thread
        if torch.compiler.is_dynamo_compiling() or is_foreign:
            return plain(*args, **kwargs)
        if not torch.is_grad_enabled() or self.model.training != self.mode:
            self.owner.note_evaluation()
            return plain(*args, **kwargs)
        self.last = (args, kwargs)
        return self._accelerated(args, kwargs)

    def plain(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """The module's own call, with its hooks."""
        return (self.before or self.model._call_impl)(*args, **kwargs)

    def use(self, run: Call | None) -> None:
        """Call the model in this way in training from now on."""
        self.run, self._is_proven = run, False

    def place(self) -> None:
        """Stand in for the module's call, also again after `remove`."""
        self._is_on = True
        if not self._is_placed:
            self.before = vars(self.model).get(ATTRIBUTE)
            vars(self.model)[ATTRIBUTE] = self
            self._is_placed = True

    def pause(self) -> None:
        """Give the module its own call back until `place`; its last inputs stay known."""
        last = self.last
        self.remove()
        if last is not None:
            note_inputs(self.model, Inputs(*last))

    def remove(self) -> None:
        """Give the module its own call back."""
        self._is_on, self.last = False, None
        note_inputs(self.model, self._inputs)
        if vars(self.model).get(ATTRIBUTE) is not self:
            return  # somebody stands in for it now, and calls this, which passes on
        self._is_placed = False
        if self.before is None:
            del vars(self.model)[ATTRIBUTE]
        else:
            vars(self.model)[ATTRIBUTE] = self.before

    def _accelerated(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        run = self.run
        if run is None:
            return self.plain(args, kwargs)
        if is_in_backward():
            return self._again(run, args, kwargs)
        restore = _state_of(self.model, with_buffers=not self._is_proven)
        self._is_inside = True
        try:
            output = run(args, kwargs)
        except Exception as error:
            failure = error
        else:
            self._is_proven |= run is self.run
            return output
        finally:
            self._is_inside = False
        restore()
        return self.owner.recover(self, failure, lambda: self._accelerated(args, kwargs))

    def _again(self, run: Call, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        """A call of the loop's checkpoint, ended early by an exception that is no failure."""
        self._is_inside = True
        try:
            return run(args, kwargs)
        finally:
            self._is_inside = False


def _state_of(model: nn.Module, *, with_buffers: bool) -> Callable[[], None]:
    """A function that restores the random state, and the model's buffers, as they are now."""
    random_state = torch.get_rng_state()
    restore_buffers = saved_buffers(model) if with_buffers else lambda: None

    def restore() -> None:
        torch.set_rng_state(random_state)
        restore_buffers()

    return restore


def origin_of_nan(
    calls: Iterable[AcceleratedCall], calls_of_copies: Callable[[nn.Module], Call]
) -> str:
    """Where a NaN began in the models' last calls, as the end of a sentence, by a run of a copy."""
    origins = [_origin(call.model, call.last, calls_of_copies) for call in calls]
    return next(filter(None, origins), "it began after the model, in the loss")


def _origin(model: nn.Module, last: Any, calls_of_copies: Callable[[nn.Module], Call]) -> str:
    if last is None:
        return ""
    if has_nan(last):
        return "it came with the inputs of the model"
    outputs: list[Any] = []
    try:
        twin = copy.deepcopy(model)
        call = calls_of_copies(twin)
        run = lambda: outputs.append(call(*last))
        with torch.random.fork_rng(), torch.no_grad():
            layer = first_nan(twin, run)
            overflowing = "" if layer else first_nan(twin, run, is_bad=is_not_finite)
    except Exception as error:
        return f"where it began is not known: a copy does not run ({type(error).__name__})"
    if layer:
        return f"it began in {describe(model, layer)}"
    if overflowing and is_not_finite(outputs):
        return f"it began in {describe(model, overflowing)}, whose output overflows"
    return f"it began in {describe(model, '')}" if has_nan(outputs) else ""
