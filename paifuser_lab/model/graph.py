"""Record one run of a model as operators: which operator, in which layer, computed which tensors
from which.

Nothing is traced symbolically, so control flow, hooks and shared layers are no problem: what ran is
what is recorded. Built on TorchDispatchMode.
"""

from __future__ import annotations

import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .tensors import tensors_in
from .watch import watching

# methods of a tensor that give Python its values without an operator
READS_MEMORY = ("tolist", "numpy")


@dataclass(frozen=True)
class Operation:
    """An operator call: name, layer, tensors read and produced by index, numeric arguments."""

    name: str
    layer: str
    reads: tuple[int, ...]
    makes: tuple[int, ...]
    shapes: tuple[tuple[int, ...], ...]
    numbers: tuple[float, ...] = ()


@dataclass(frozen=True)
class Graph:
    """The operators of one run, in order."""

    operations: tuple[Operation, ...]
    weights: dict[str, int]
    outputs: frozenset[int]
    entries: Counter[str]
    readers: dict[int, tuple[Operation, ...]] = field(repr=False)
    # layer → tensor, operators run before
    layer_outputs: dict[str, tuple[int, int]] = field(default_factory=dict, repr=False)
    branches: bool = False  # Python got a value that depends on the inputs, and may branch on it
    sizes: tuple[tuple[tuple[int, ...], int], ...] = field(default=(), repr=False)
    # shape and bytes of each tensor
    constants: frozenset[int] = frozenset()  # the same whatever the inputs

    def maker(self, tensor: int) -> Operation | None:
        """The operator that produced a tensor; None for inputs and weights."""
        return next((operation for operation in self.operations if tensor in operation.makes), None)

    def of_layer(self, layer: str) -> tuple[Operation, ...]:
        """The operators that a layer ran itself."""
        return tuple(operation for operation in self.operations if operation.layer == layer)


def observe(model: nn.Module, run: Callable[[], Any]) -> Graph:
    """Run a model once and record its operators."""
    layers: list[str] = [""]
    entries: Counter[str] = Counter()
    layer_outputs: dict[str, tuple[int, int]] = {}

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        layers.append(layer)
        entries[layer] += 1

    def leave(layer: str, output: Any) -> None:
        layers.pop()
        if isinstance(output, Tensor):
            layer_outputs[layer] = recorder.number(output), len(recorder.operations)

    recorder = _Recorder(layers)
    named = (
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    )
    weights = {name: recorder.number(tensor) for name, tensor in named}
    recorder.fixed.update(weights.values())
    with watching(model, enter, leave), torch.no_grad(), recorder, recorder.seeing_reads():
        output = run()
    outputs = frozenset(map(recorder.number, tensors_in(output)))
    return Graph(
        tuple(recorder.operations),
        weights,
        outputs,
        entries,
        _readers(recorder.operations),
        layer_outputs,
        recorder.branches,
        tuple((_shape(tensor), _bytes(tensor)) for tensor in recorder.alive),
        frozenset(recorder.fixed),
    )


def _bytes(tensor: Tensor) -> int:
    """What a tensor takes; 0 where its layout does not tell."""
    return tensor.nbytes if tensor.layout is torch.strided else 0


def _shape(tensor: Tensor) -> tuple[int, ...]:
    is_ragged = tensor.is_nested and tensor.layout is torch.strided
    return () if is_ragged else tuple(tensor.shape)


def _readers(operations: list[Operation]) -> dict[int, tuple[Operation, ...]]:
    readers: dict[int, list[Operation]] = {}
    for operation in operations:
        for tensor in set(operation.reads):
            readers.setdefault(tensor, []).append(operation)
    return {tensor: tuple(users) for tensor, users in readers.items()}


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Records operators; keeps every tensor alive during the run, so that no id is reused."""

    wants_parts = True  # fused layers run as their parts

    def __init__(self, layers: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers = layers
        self.operations: list[Operation] = []
        self.numbers: dict[int, int] = {}
        self.alive: list[Tensor] = []
        self.fixed: set[int] = set()  # tensors that are the same whatever the inputs
        self.branches = False

    def number(self, tensor: Tensor) -> int:
        if id(tensor) not in self.numbers:
            self.numbers[id(tensor)] = len(self.numbers)
            self.alive.append(tensor)
        return self.numbers[id(tensor)]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        arguments = pytree.tree_leaves((args, kwargs))
        reads = [leaf for leaf in arguments if isinstance(leaf, Tensor)]
        produced = tensors_in(result)
        if self.fixed.issuperset(map(self.number, reads)):
            self.fixed.update(map(self.number, produced))
        else:
            self.fixed.difference_update(map(self.number, produced))
            self.branches = self.branches or _gives_values(func, reads)
        self.operations.append(
            Operation(
                func._schema.name.removeprefix("aten::"),
                self.layers[-1],
                tuple(self.number(leaf) for leaf in reads),
                tuple(self.number(leaf) for leaf in produced),
                tuple(map(_shape, produced)),
                tuple(leaf for leaf in arguments if isinstance(leaf, int | float)),
            )
        )
        return result

    @contextmanager
    def seeing_reads(self) -> Iterator[None]:
        """Note where Python reads values that depend on the inputs from memory. A function mode
        would see that too, but switch off the fast path of nn.TransformerEncoder.
        """

        def see(_frame: Any, event: str, called: Any) -> None:
            if event == "c_call" and called.__name__ in READS_MEMORY:
                tensor = called.__self__
                if isinstance(tensor, Tensor) and self.number(tensor) not in self.fixed:
                    self.branches = True

        before: Any = sys.getprofile()
        sys.setprofile(see)
        try:
            yield
        finally:
            if hasattr(before, "enable"):  # cProfile's is no function, and resumes by itself
                before.enable()
            else:
                sys.setprofile(before)


def _gives_values(func: Any, reads: list[Tensor]) -> bool:
    """Whether Python learns values of the tensors: a number, or a shape that depends on them."""
    if func is torch.ops.aten.index.Tensor:  # the tag is there for masks; indices keep their shape
        return any(leaf.dtype in (torch.bool, torch.uint8) for leaf in reads[1:])
    tags = {torch.Tag.data_dependent_output, torch.Tag.dynamic_output_shape}
    return not tags.isdisjoint(func.tags)
