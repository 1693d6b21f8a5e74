"""What a model does to its tensors, seen by running it once: which operator, in which layer, made
what from what.

Nothing is traced symbolically, so control flow, hooks and shared layers do not matter: what ran is
what is written down. Stands on TorchDispatchMode.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import TorchDispatchMode

from .watch import watching


@dataclass(frozen=True)
class Operation:
    """One operator call: its name, the layer that ran it, the tensors it read and made, by number,
    and the plain numbers it was given.
    """

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
    answers: dict[str, tuple[int, int]] = field(
        default_factory=dict, repr=False
    )  # layer → tensor, operators run before

    def maker(self, tensor: int) -> Operation | None:
        """The operator that made a tensor; None for inputs and weights."""
        return next((one for one in self.operations if tensor in one.makes), None)

    def of_layer(self, layer: str) -> tuple[Operation, ...]:
        """The operators that a layer ran itself."""
        return tuple(one for one in self.operations if one.layer == layer)


def observe(model: nn.Module, run: Callable[[], Any]) -> Graph:
    """Run a model once and write down what it did."""
    layers: list[str] = [""]
    entries: Counter[str] = Counter()
    answers: dict[str, tuple[int, int]] = {}

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        layers.append(layer)
        entries[layer] += 1

    def leave(layer: str, output: Any) -> None:
        layers.pop()
        if isinstance(output, Tensor):
            answers[layer] = recorder.number(output), len(recorder.operations)

    recorder = _Recorder(layers)
    named = (
        *model.named_parameters(remove_duplicate=False),
        *model.named_buffers(remove_duplicate=False),
    )
    weights = {name: recorder.number(tensor) for name, tensor in named}
    with watching(model, enter, leave), torch.no_grad(), recorder:
        output = run()
    outputs = frozenset(
        recorder.number(leaf) for leaf in pytree.tree_leaves(output) if isinstance(leaf, Tensor)
    )
    return Graph(
        tuple(recorder.operations),
        weights,
        outputs,
        entries,
        _readers(recorder.operations),
        answers,
    )


def _readers(operations: list[Operation]) -> dict[int, tuple[Operation, ...]]:
    readers: dict[int, list[Operation]] = {}
    for one in operations:
        for tensor in set(one.reads):
            readers.setdefault(tensor, []).append(one)
    return {tensor: tuple(ones) for tensor, ones in readers.items()}


class _Recorder(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Writes operators down; keeps every tensor alive for the run, so that no number is given
    twice.
    """

    wants_parts = True  # layers that run as one are to run apart

    def __init__(self, layers: list[str]) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self.layers = layers
        self.operations: list[Operation] = []
        self.numbers: dict[int, int] = {}
        self.alive: list[Tensor] = []

    def number(self, tensor: Tensor) -> int:
        if id(tensor) not in self.numbers:
            self.numbers[id(tensor)] = len(self.numbers)
            self.alive.append(tensor)
        return self.numbers[id(tensor)]

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        result = func(*args, **(kwargs or {}))
        given = pytree.tree_leaves((args, kwargs))
        reads = [leaf for leaf in given if isinstance(leaf, Tensor)]
        made = [leaf for leaf in pytree.tree_leaves(result) if isinstance(leaf, Tensor)]
        self.operations.append(
            Operation(
                func._schema.name.removeprefix("aten::"),
                self.layers[-1],
                tuple(self.number(leaf) for leaf in reads),
                tuple(self.number(leaf) for leaf in made),
                tuple(
                    () if leaf.is_nested and leaf.layout is torch.strided else tuple(leaf.shape)
                    for leaf in made
                ),
                tuple(leaf for leaf in given if isinstance(leaf, int | float)),
            )
        )
        return result
