"""Whose values each operator of a run reads: an int8 layer's, or those that some other operator
made.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable
from dataclasses import dataclass, field

from ...model.graph import Graph, Operation
from ..neighbours import CLAMPS, MOVES, PRODUCTS, Clamp, clamp_of

SUMS = ("add", "add_", "cat")
PICKS = (
    "max_pool2d_with_indices",
    "slice",
    "select",
)  # moves after which the range may be narrower


@dataclass
class Source:
    """Something whose values are read, as they are or moved and clamped."""

    layer: str | None = None  # the int8 layer that makes them; others are made by some operator
    is_convolution: bool = False
    summands: list[Source] = field(default_factory=list)  # of a sum that reads sources alone
    reads: list[Read] = field(default_factory=list)
    answers: list[tuple[str, int, int]] = field(
        default_factory=list
    )  # module, tensor, and how many operators ran before
    made_at: dict[int, int] = field(default_factory=dict)  # tensor → the operator that made it last

    @property
    def consumers(self) -> list[str]:
        """The int8 layers that read it."""
        return [one.consumer for one in self.reads if one.consumer is not None]


@dataclass
class Read:
    """An operator reads a source: an int8 layer, a sum, one that moves or clamps it, or (none of
    these) one that wants numbers.
    """

    at: int
    tensor: int
    consumer: str | None = None
    into: Source | None = None
    passes: bool = False
    clamp: Clamp | None = None  # what it does to them as it passes them on
    picks: bool = False  # it passes some of them on
    changes: tuple[int, ...] = ()  # the operators that clamped them, or picked some, before


@dataclass(frozen=True)
class _Value:
    source: Source
    changes: tuple[int, ...] = ()


def sources_of(graph: Graph, int8: Collection[str]) -> list[Source]:
    """All that is made in a run, in order; an output of the model is read by someone who wants
    numbers.
    """
    walk = _Walk(graph, int8)
    for at, one in enumerate(graph.operations):
        walk.note_outputs(at)
        walk.step(at, one)
    walk.note_outputs(len(graph.operations))
    walk.read_outside(len(graph.operations), graph.outputs)
    return walk.found


class _Walk:
    def __init__(self, graph: Graph, int8: Collection[str]) -> None:
        self.int8 = {layer for layer in int8 if graph.entries[layer] == 1}
        self.found: list[Source] = []
        self.values: dict[int, _Value] = {}  # tensor → whose values it holds
        self.indices: dict[int, Source] = {}  # where a pooling found its greatest
        self.answered: dict[int, list[tuple[str, int]]] = {}
        for module, (tensor, at) in graph.answers.items():
            if module and graph.entries[module] == 1:
                self.answered.setdefault(at, []).append((module, tensor))

    def note_outputs(self, at: int) -> None:
        for module, tensor in self.answered.get(at, ()):
            if tensor in self.values:
                self.values[tensor].source.answers.append((module, tensor, at))

    def read_outside(self, at: int, tensors: Iterable[int]) -> None:
        for tensor in tensors:
            if source := self.indices.get(tensor) or (
                self.values[tensor].source if tensor in self.values else None
            ):
                source.reads.append(Read(at, tensor))

    def step(self, at: int, one: Operation) -> None:
        read = [
            (tensor, self.values[tensor])
            for tensor in dict.fromkeys(one.reads)
            if tensor in self.values
        ]
        self.read_outside(at, self.indices.keys() & set(one.reads))
        if one.name in (*MOVES, *CLAMPS) and read:
            self._pass(at, one, *read[0])
        else:
            self._make(at, one, read)

    def _make(self, at: int, one: Operation, read: list[tuple[int, _Value]]) -> None:
        is_product = one.layer in self.int8 and one.name in PRODUCTS
        output = Source(one.layer, one.name == "convolution") if is_product else Source()
        if (
            one.name in SUMS
            and len(one.reads) > 1
            and all(tensor in self.values for tensor in one.reads)
        ):
            output.summands = [self.values[tensor].source for tensor in one.reads]
        for tensor, value in read:
            into = output if output.summands else None
            value.source.reads.append(
                Read(at, tensor, one.layer if is_product else None, into, changes=value.changes)
            )
        self.found.append(output)
        for tensor in one.makes:
            self.values[tensor] = _Value(output)
            output.made_at[tensor] = at

    def _pass(self, at: int, one: Operation, tensor: int, value: _Value) -> None:
        """Inside the layer that made them values only take their shape; elsewhere it counts that
        they are read.
        """
        source, changes = value.source, value.changes
        if one.layer != source.layer:
            clamp = clamp_of(one) if one.name in CLAMPS else None
            picks = one.name in PICKS
            source.reads.append(
                Read(at, tensor, passes=True, clamp=clamp, picks=picks, changes=changes)
            )
            changes = (*changes, at) if picks or clamp else changes
        self.values[one.makes[0]] = _Value(source, changes)
        source.made_at[one.makes[0]] = at
        self.indices.update(dict.fromkeys(one.makes[1:], source))
