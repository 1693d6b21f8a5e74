"""Which int8 layers read an int8 layer's output, and so in which range it is passed on."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from ..model.formats import Range
from ..model.graph import Graph, Operation
from .layers.int8 import Requantization

PRODUCTS = ("convolution", "addmm", "mm", "linear")
MOVES = (
    "max_pool2d_with_indices",
    "view",
    "_unsafe_view",
    "permute",
    "transpose",
    "t",
    "unsqueeze",
    "squeeze",
    "slice",
    "select",
    "expand",
    "detach",
    "alias",
    "clone",
)
CLAMPS = ("relu", "relu_", "hardtanh", "hardtanh_")
SUMS = ("add", "add_", "cat")
# moves after which the range may be narrower
PICKS = ("max_pool2d_with_indices", "slice", "select")

Clamp = tuple[float, float | None]


@dataclass(frozen=True)
class Handover:
    """How a layer passes its output on in int8, and the layers that read it so."""

    requantization: Requantization
    readers: tuple[str, ...]


def handovers(graph: Graph, spans: Mapping[str, Range]) -> dict[str, Handover]:
    """How int8 layers pass their output on: in int8 if int8 layers of one range alone read it."""
    once = {layer for layer in spans if graph.entries[layer] == 1}
    result: dict[str, Handover] = {}
    for source in sources_of(graph, once, spans):
        ranges = {spans[consumer] for consumer in source.consumers}
        if (
            source.layer is None
            or len(ranges) != 1
            or not all(read.consumer for read in source.finals)
        ):
            continue
        requantization = Requantization(ranges.pop(), source.clamp)
        result[source.layer] = Handover(requantization, tuple(dict.fromkeys(source.consumers)))
    return result


def requantizations(graph: Graph, spans: Mapping[str, Range]) -> dict[str, Requantization]:
    """The same without the layers that read it."""
    return {layer: handover.requantization for layer, handover in handovers(graph, spans).items()}


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
    def finals(self) -> list[Read]:
        """The reads that do not only pass it on."""
        return [read for read in self.reads if not read.passes]

    @property
    def consumers(self) -> list[str]:
        """The int8 layers that read it."""
        return [read.consumer for read in self.reads if read.consumer is not None]

    @property
    def clamp(self) -> Clamp | None:
        """The clamp that alone reads the values as they were computed: the layer fuses it."""
        own = [read for read in self.reads if not read.changes]
        return own[0].clamp if len(own) == 1 else None


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


def sources_of(graph: Graph, makers: Collection[str], readers: Collection[str]) -> list[Source]:
    """All sources of a run, in order, given the int8 layers that compute and that read; an output
    of the model counts as read by an operator that needs floats.
    """
    walk = _Walk(graph, makers, readers)
    for at, operation in enumerate(graph.operations):
        walk.note_outputs(at)
        walk.step(at, operation)
    walk.note_outputs(len(graph.operations))
    walk.read_outside(len(graph.operations), graph.outputs)
    return walk.sources


class _Walk:
    def __init__(self, graph: Graph, makers: Collection[str], readers: Collection[str]) -> None:
        self.makers, self.readers = makers, readers
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
        output, layer = Source(), operation.layer if operation.name in PRODUCTS else None
        if layer in self.makers:
            output = Source(layer, operation.name == "convolution")
        if (
            operation.name in SUMS
            and len(operation.reads) > 1
            and all(tensor in self.values for tensor in operation.reads)
        ):
            output.summands = [self.values[tensor].source for tensor in operation.reads]
        consumer = layer if layer in self.readers else None
        into = output if output.summands else None
        for tensor, value in read:
            value.source.reads.append(Read(at, tensor, consumer, into, changes=value.changes))
        self.sources.append(output)
        for tensor in operation.makes:
            self.values[tensor] = _Value(output)
            output.made_at[tensor] = at

    def _pass(self, at: int, operation: Operation, tensor: int, value: _Value) -> None:
        """Inside its own layer a value is only reshaped; elsewhere the operator is a read."""
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


def clamp_of(operation: Operation) -> Clamp:
    """The bounds of an operator of CLAMPS."""
    if operation.name.startswith("relu"):
        return 0.0, None
    # trailing arguments may have been left at their defaults
    low, high = *operation.numbers, *(-1.0, 1.0)[len(operation.numbers) :]
    return float(low), float(high)
