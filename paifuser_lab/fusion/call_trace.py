"""How a model's parts are called: the form of a call, and the calls recorded in one run."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ..model.watch import watching
from .fallback import composing

PLAIN = (bool, int, float, str, type(None))
TENSOR = ("Tensor",)
Slot = tuple[Any, ...]  # TENSOR, or a type's name and the value, so that True differs from 1


@dataclass(frozen=True)
class Form:
    """The arguments of a call without its tensors."""

    args: tuple[Slot, ...]
    kwargs: tuple[tuple[str, Slot], ...] = ()

    @classmethod
    def of_data(cls, data: Any) -> Form:
        """A form from plain data."""
        args, kwargs = data
        return cls(
            tuple(tuple(slot) for slot in args), tuple((name, tuple(slot)) for name, slot in kwargs)
        )

    @property
    def data(self) -> Any:
        """The form as plain data."""
        return [
            [list(slot) for slot in self.args],
            [[name, list(slot)] for name, slot in self.kwargs],
        ]

    @property
    def tensors(self) -> int:
        """The number of tensors in such a call."""
        return sum(slot == TENSOR for slot in (*self.args, *(slot for _, slot in self.kwargs)))

    @property
    def is_one_tensor(self) -> bool:
        """Whether the call has one positional tensor and nothing else, as nearly every block's."""
        return self.args == (TENSOR,) and not self.kwargs

    def taken_from(self, args: tuple[Any, ...], kwargs: dict[str, Any]) -> list[Tensor] | None:
        """The tensors of a call of this form; None for another call."""
        if self.is_one_tensor and len(args) == 1 and not kwargs and isinstance(args[0], Tensor):
            return [args[0]]
        if form_of(args, kwargs) != self:
            return None
        return [value for value in (*args, *kwargs.values()) if isinstance(value, Tensor)]

    def filled(self, tensors: list[Any]) -> tuple[list[Any], dict[str, Any]]:
        """The arguments of such a call with these tensors."""
        values = iter(tensors)
        args = [next(values) if slot == TENSOR else slot[1] for slot in self.args]
        return args, {
            name: next(values) if slot == TENSOR else slot[1] for name, slot in self.kwargs
        }


def form_of(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Form | None:
    """The form of a call; None if an argument is neither a tensor nor a plain value."""
    if not all(
        isinstance(value, Tensor) or type(value) in PLAIN for value in (*args, *kwargs.values())
    ):
        return None
    return Form(
        tuple(_slot(value) for value in args),
        tuple((name, _slot(value)) for name, value in kwargs.items()),
    )


def _slot(value: Any) -> Slot:
    return TENSOR if isinstance(value, Tensor) else (type(value).__name__, value)


@dataclass
class CallTrace:
    """The calls of one run, by layer."""

    calls: Counter[str] = field(default_factory=Counter)
    # of the first call, in the order of these
    forms: dict[str, Form | None] = field(default_factory=dict)
    passing: set[str] = field(default_factory=set)


def trace_calls(model: nn.Module, run: Callable[[], Any]) -> CallTrace:
    """Run a model once and record how its parts are called."""
    trace, inputs = CallTrace(), list[tuple[Any, int]]()
    changing: set[str] = set()

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if not trace.calls[layer]:
            trace.forms[layer] = form_of(args, kwargs)
        trace.calls[layer] += 1
        input = args[0] if len(args) == 1 and not kwargs else None
        inputs.append((input, input._version if isinstance(input, Tensor) else 0))

    def leave(layer: str, output: Any) -> None:
        input, version = inputs.pop()
        if not isinstance(output, Tensor) or input is not output or output._version != version:
            changing.add(layer)

    with watching(model, enter, leave), composing():
        run()
    trace.passing = set(trace.calls) - changing
    return trace
