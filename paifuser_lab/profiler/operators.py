"""Which operators each layer ran itself, how long each took and what it cost: a few runs under a
TorchDispatchMode.

An operator is timed inside the mode, so that the mode's own work is not in its time. What a layer
needed beyond its operators is the cost of calling them.
"""

from __future__ import annotations

import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ..model.watch import watching
from .cost import Cost, cost_of, shape_of

Key = tuple[str, str]  # layer, operator


@dataclass
class Operators:
    """What the runs showed: by layer and operator, and by layer."""

    calls: dict[Key, int] = field(default_factory=lambda: defaultdict(int))
    costs: dict[Key, Cost] = field(default_factory=lambda: defaultdict(Cost))
    runs_ms: list[dict[Key, float]] = field(default_factory=list)
    answers: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    given: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    channels_last: set[str] = field(default_factory=set)
    reads_from: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    entered: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def of_layer(self, layer: str) -> list[str]:
        """The operators that a layer ran itself, in the order in which they first came."""
        return [name for owner, name in self.calls if owner == layer]


def watch_operators(
    model: nn.Module,
    fresh_call: Callable[[], Callable[[], Any]],
    *,
    runs: int,
    found: Operators | None = None,
) -> Operators:
    """Run a model once to count its operators and a few times to time them; compiled parts run
    eagerly here, to be seen.

    What a run that fails has seen until then is in `found`.
    """
    found = Operators() if found is None else found
    with torch.compiler.set_stance("force_eager"):
        for turn in range(runs + 1):
            _run_once(model, fresh_call(), found, is_count=turn == 0)
    return found


def _run_once(
    model: nn.Module, run: Callable[[], Any], found: Operators, *, is_count: bool
) -> None:
    layers = [""]
    mode = _Counting(layers, found) if is_count else _Timing(layers, found)

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        layers.append(layer)
        if is_count:
            found.entered[layer] += 1
            found.given[layer] = _shapes((args, kwargs))

    def leave(layer: str, output: Any) -> None:
        layers.pop()
        if is_count:
            _note_answer(found, layer, output)

    try:
        with watching(model, enter, leave), mode:
            run()
    finally:
        if isinstance(mode, _Timing):
            found.runs_ms.append(dict(mode.spent_ms))


def _note_answer(found: Operators, layer: str, output: Any) -> None:
    tensors = _tensors(output)
    if not tensors:
        return
    found.answers[layer] = _shapes(tensors)
    found.dtypes[layer] = str(tensors[0].dtype).removeprefix("torch.")
    if _is_channels_last(tensors[0]):
        found.channels_last.add(layer)


def _is_channels_last(tensor: Tensor) -> bool:
    """Whether it can only be that: with one channel, or one pixel, both layouts are the same."""
    is_image = not tensor.is_nested and tensor.layout is torch.strided and tensor.ndim == 4
    return (
        is_image
        and tensor.is_contiguous(memory_format=torch.channels_last)
        and not tensor.is_contiguous()
    )


def _shapes(values: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(shape_of(one) for one in _tensors(values))


def _tensors(values: Any) -> list[Tensor]:
    return [leaf for leaf in pytree.tree_leaves(values) if isinstance(leaf, Tensor)]


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up what each operator costs."""

    supports_higher_order_operators = True

    def __init__(self, layers: list[str], found: Operators) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers, self.found = layers, found
        self.makers: dict[int, tuple[weakref.ref[Tensor], str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (answer := _taken_apart(self, func, args, kwargs)) is not NotImplemented:
            return answer
        result = func(*args, **kwargs)
        key = (self.layers[-1], operator_name(func))
        self.found.calls[key] += 1
        self.found.costs[key] = Cost(
            *(
                a + b
                for a, b in zip(
                    self.found.costs[key], cost_of(func, args, kwargs, result), strict=True
                )
            )
        )
        self._note_flow(self.layers[-1], (args, kwargs), result)
        return result

    def _note_flow(self, layer: str, given: Any, result: Any) -> None:
        """Remember who made each tensor; a weak reference, so that nothing lives longer than in an
        untouched run.
        """
        for one in _tensors(given):
            reference, maker = self.makers.get(id(one), (None, layer))
            if maker != layer and reference is not None and reference() is one:
                self.found.reads_from[layer][maker] = None
        for one in _tensors(result):
            self.makers[id(one)] = (weakref.ref(one), layer)


class _Timing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up how long each operator takes."""

    supports_higher_order_operators = True

    def __init__(self, layers: list[str], found: Operators) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers = layers
        self.spent_ms: dict[Key, float] = defaultdict(float)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (answer := _taken_apart(self, func, args, kwargs)) is not NotImplemented:
            return answer
        began = time.perf_counter_ns()
        result = func(*args, **kwargs)
        self.spent_ms[self.layers[-1], operator_name(func)] += (
            time.perf_counter_ns() - began
        ) / 1e6
        return result


def _taken_apart(mode: TorchDispatchMode, func: Any, args: Any, kwargs: Any) -> Any:
    """The answer of an operator that is made of others, which the mode then sees; NotImplemented of
    one that runs whole.
    """
    if func is torch.ops.higher_order.cond:
        holds, if_so, if_not, operands = args
        with mode:
            return (if_so if holds else if_not)(*operands)
    if not _is_composite(func):
        return NotImplemented
    with mode:
        return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


@cache
def _is_composite(func: Any) -> bool:
    """Whether torch itself runs other operators in its stead; `func.decompose` would also rewrite
    operators that run whole.
    """
    if isinstance(func, HigherOrderOperator) or func._overloadpacket in flop_registry:
        return False
    return bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    )


def operator_name(func: Any) -> str:
    """An operator as a row names it: 'aten::add.Tensor' is 'add', another library's keeps its
    namespace.
    """
    if isinstance(func, HigherOrderOperator):
        return str(func.__name__)
    return str(func._schema.name).removeprefix("aten::")
