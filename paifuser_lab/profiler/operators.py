"""The operators that each layer ran itself, with times and costs, by a TorchDispatchMode.

An operator is timed inside the mode, so that the mode's own work is not in its time. A layer's time
beyond its operators is the cost of calling them.
"""

from __future__ import annotations

import time
import weakref
from collections import defaultdict
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cache
from operator import add
from typing import Any

import torch
from torch import Tensor, nn
from torch._ops import HigherOrderOperator
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils.flop_counter import flop_registry

from ..model.tensors import is_channels_last, tensors_in
from ..model.watch import watching
from .cost import Cost, cost_of, shape_of

Key = tuple[str, str]  # layer, operator


@dataclass
class Operators:
    """The results of the runs: by layer and operator, and by layer."""

    calls: dict[Key, int] = field(default_factory=lambda: defaultdict(int))
    costs: dict[Key, Cost] = field(default_factory=lambda: defaultdict(Cost))
    runs_ms: list[dict[Key, float]] = field(default_factory=list)
    output_shapes: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    dtypes: dict[str, str] = field(default_factory=dict)
    input_shapes: dict[str, tuple[tuple[int, ...], ...]] = field(default_factory=dict)
    channels_last: set[str] = field(default_factory=set)
    reads_from: dict[str, dict[str, None]] = field(default_factory=lambda: defaultdict(dict))
    entered: dict[str, int] = field(default_factory=lambda: defaultdict(int))

    def of_layer(self, layer: str) -> list[str]:
        """The operators that a layer ran itself, in order of their first call."""
        return [name for owner, name in self.calls if owner == layer]


def watch_operators(
    model: nn.Module, fresh_call: Callable[[], Callable[[], Any]], *, runs: int
) -> Operators:
    """Run a model once to count its operators and a few times to time them, nothing compiled."""
    operators = Operators()
    with torch.compiler.set_stance("force_eager"):
        for turn in range(runs + 1):
            _run_once(model, fresh_call(), operators, is_count=turn == 0)
    return operators


def _run_once(
    model: nn.Module, run: Callable[[], Any], operators: Operators, *, is_count: bool
) -> None:
    layers = [""]
    mode = _Counting(layers, operators) if is_count else _Timing(layers)

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        layers.append(layer)
        if is_count:
            operators.entered[layer] += 1
            operators.input_shapes[layer] = _shapes((args, kwargs))

    def leave(layer: str, output: Any) -> None:
        layers.pop()
        if is_count:
            _note_output(operators, layer, output)

    with watching(model, enter, leave), mode:
        run()
    if isinstance(mode, _Timing):
        operators.runs_ms.append(dict(mode.spent_ms))


def _note_output(operators: Operators, layer: str, output: Any) -> None:
    tensors = tensors_in(output)
    if not tensors:
        return
    operators.output_shapes[layer] = _shapes(tensors)
    operators.dtypes[layer] = str(tensors[0].dtype).removeprefix("torch.")
    if is_channels_last(tensors[0]):
        operators.channels_last.add(layer)


def _shapes(values: Any) -> tuple[tuple[int, ...], ...]:
    return tuple(shape_of(tensor) for tensor in tensors_in(values))


class _Counting(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up what each operator costs."""

    supports_higher_order_operators = True

    def __init__(self, layers: list[str], operators: Operators) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers, self.operators = layers, operators
        self.makers: dict[int, tuple[weakref.ref[Tensor], str]] = {}

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (output := _run_composite(self, func, args, kwargs)) is not NotImplemented:
            return output
        result = func(*args, **kwargs)
        key = (self.layers[-1], operator_name(func))
        self.operators.calls[key] += 1
        cost = cost_of(func, args, kwargs, result)
        self.operators.costs[key] = Cost(*map(add, self.operators.costs[key], cost))
        self._note_flow(self.layers[-1], (args, kwargs), result)
        return result

    def _note_flow(self, layer: str, inputs: Any, result: Any) -> None:
        """Remember the layer that made each tensor; weak references keep lifetimes unchanged."""
        for tensor in tensors_in(inputs):
            reference, maker = self.makers.get(id(tensor), (None, layer))
            if maker != layer and reference is not None and reference() is tensor:
                self.operators.reads_from[layer][maker] = None
        for tensor in tensors_in(result):
            self.makers[id(tensor)] = (weakref.ref(tensor), layer)


class _Timing(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Adds up how long each operator takes."""

    supports_higher_order_operators = True

    def __init__(self, layers: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers = layers
        self.spent_ms: dict[Key, float] = defaultdict(float)

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        kwargs = kwargs or {}
        if (output := _run_composite(self, func, args, kwargs)) is not NotImplemented:
            return output
        began = time.perf_counter_ns()
        result = func(*args, **kwargs)
        self.spent_ms[self.layers[-1], operator_name(func)] += (
            time.perf_counter_ns() - began
        ) / 1e6
        return result


def _run_composite(mode: TorchDispatchMode, func: Any, args: Any, kwargs: Any) -> Any:
    """The output of a composite operator, whose parts the mode sees; else NotImplemented."""
    if func is torch.ops.higher_order.cond:
        is_true, if_true, if_false, operands = args
        with mode:
            return (if_true if is_true else if_false)(*operands)
    if not _is_composite(func):
        return NotImplemented
    with mode:
        return func._op_dk(torch._C.DispatchKey.CompositeImplicitAutograd, *args, **kwargs)


@cache
def _is_composite(func: Any) -> bool:
    """Whether torch runs others in its place; `func.decompose` would rewrite more than those."""
    if isinstance(func, HigherOrderOperator) or func._overloadpacket in flop_registry:
        return False
    return bool(
        torch._C._dispatch_has_kernel_for_dispatch_key(func.name(), "CompositeImplicitAutograd")
    )


def operator_name(func: Any) -> str:
    """The name in a row: 'aten::add.Tensor' is 'add'; other libraries keep their namespace."""
    if isinstance(func, HigherOrderOperator):
        return str(func.__name__)
    return str(func._schema.name).removeprefix("aten::")
