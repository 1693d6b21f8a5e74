"""Which source each operator of a run reads: the values of an int8 layer, or those of some other
operator.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ...model.graph import Graph, Operation
from ..neighbours import CLAMPS, MOVES, PRODUCTS, Clamp, clamp_of

SUMS = ("add", "add_", "cat")
# moves after which the range may be narrower
PICKS = ("max_pool2d_with_indices", "slice", "select")


@dataclass
class Source:
    """Values that are read as they are, or moved and clamped."""

    layer: str | None = None  # the int8 layer that computed them; None for other operators
    is_convolution: bool = False
    summands: list[Source] = field(default_factory=list)  # of a sum that reads only sources
    reads: list[Read] = field(default_factory=list)
    # the modules that output it: module, tensor, and the number of operators run before
    outputs: list[tuple[str, int, int]] = field(default_factory=list)
    made_at: dict[int, int] = field(
        default_factory=dict
    )  # tensor → the operator that last produced it

    @property
    def consumers(self) -> list[str]:
        """The int8 layers that read it."""
        return [read.consumer for read in self.reads if read.consumer is not None]


@dataclass
class Read:
    """An operator reads a source: an int8 layer, a sum, one that moves or clamps it, or any other,
    which needs floats.
    """

    at: int
    tensor: int
    consumer: str | None = None
    into: Source | None = None
    passes: bool = False
    clamp: Clamp | None = None  # the clamp as it passes the values on
    picks: bool = False  # it passes on only some of them
    changes: tuple[int, ...] = ()  # the operators that clamped them, or selected some, before


@dataclass(frozen=True)
class _Value:
    source: Source
    changes: tuple[int, ...] = ()


def sources_of(graph: Graph, int8: Collection[str]) -> list[Source]:
    """All sources of a run, in order; an output of the model counts as read by an operator that
    needs floats.
    """
    walk = _Walk(graph, int8)
    for at, operation in enumerate(graph.operations):
        walk.note_outputs(at)
        walk.step(at, operation)
    walk.note_outputs(len(graph.operations))
    walk.read_outside(len(graph.operations), graph.outputs)
    return walk.sources


class _Walk:
    def __init__(self, graph: Graph, int8: Collection[str]) -> None:
        self.int8 = {layer for layer in int8 if graph.entries[layer] == 1}
        self.sources: list[Source] = []
        self.values: dict[int, _Value] = {}  # tensor → the source whose values it holds
        self.indices: dict[int, Source] = {}  # the index outputs of max-pooling
        self.outputs_at: dict[int, list[tuple[str, int]]] = {}
        for module, (tensor, at) in graph.layer_outputs.items():
            if module and graph.entries[module] == 1:
                self.outputs_at.setdefault(at, []).append((module, tensor))

    def note_outputs(self, at: int) -> None:
        for module, tensor in self.outputs_at.get(at, ()):
            if tensor in self.values:
                self.values[tensor].source.outputs.append((module, tensor, at))

    def read_outside(self, at: int, tensors: Iterable[int]) -> None:
        for tensor in tensors:
            if source := self.indices.get(tensor) or (
                self.values[tensor].source if tensor in self.values else None
            ):
                source.reads.append(Read(at, tensor))

    def step(self, at: int, operation: Operation) -> None:
        read = [
            (tensor, self.values[tensor])
            for tensor in dict.fromkeys(operation.reads)
            if tensor in self.values
        ]
        self.read_outside(at, self.indices.keys() & set(operation.reads))
        if operation.name in (*MOVES, *CLAMPS) and read:
            self._pass(at, operation, *read[0])
        else:
            self._make(at, operation, read)

    def _make(self, at: int, operation: Operation, read: list[tuple[int, _Value]]) -> None:
        is_product = operation.layer in self.int8 and operation.name in PRODUCTS
        output = (
            Source(operation.layer, operation.name == "convolution") if is_product else Source()
        )
        if (
            operation.name in SUMS
            and len(operation.reads) > 1
            and all(tensor in self.values for tensor in operation.reads)
        ):
            output.summands = [self.values[tensor].source for tensor in operation.reads]
        for tensor, value in read:
            into = output if output.summands else None
            value.source.reads.append(
                Read(
                    at, tensor, operation.layer if is_product else None, into, changes=value.changes
                )
            )
        self.sources.append(output)
        for tensor in operation.makes:
            self.values[tensor] = _Value(output)
            output.made_at[tensor] = at

    def _pass(self, at: int, operation: Operation, tensor: int, value: _Value) -> None:
        """Inside its own layer a value is only reshaped; elsewhere the operator counts as a
        read.
        """
        source, changes = value.source, value.changes
        if operation.layer != source.layer:
            clamp = clamp_of(operation) if operation.name in CLAMPS else None
            picks = operation.name in PICKS
            source.reads.append(
                Read(at, tensor, passes=True, clamp=clamp, picks=picks, changes=changes)
            )
            changes = (*changes, at) if picks or clamp else changes
        self.values[operation.makes[0]] = _Value(source, changes)
        source.made_at[operation.makes[0]] = at
        self.indices.update(dict.fromkeys(operation.makes[1:], source))
