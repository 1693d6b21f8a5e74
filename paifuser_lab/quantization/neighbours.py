"""Which layers pass their output on in int8 because the next layer reads it so; read from one
run.
"""

from __future__ import annotations

from dataclasses import dataclass, field

from ..formats import Range
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

Clamp = tuple[float, float | None]


@dataclass
class _Readers:
    """The readers of a layer's output, before and after operators that int8 passes through."""

    int8: set[str] = field(default_factory=set)
    clamps: list[Clamp] = field(default_factory=list)  # the clamps that read the output itself
    others: int = 0  # the other operators that read the output itself
    needs_floats: bool = False


@dataclass(frozen=True)
class Handover:
    """How a layer passes its output on in int8, and the layers that read it so."""

    requantization: Requantization
    readers: frozenset[str]


def requantizations(graph: Graph, spans: dict[str, Range]) -> dict[str, Requantization]:
    """How int8 layers pass their output on: in int8 where only int8 layers read it, and nothing
    writes over it or returns it.
    """
    return {layer: handover.requantization for layer, handover in handovers(graph, spans).items()}


def handovers(graph: Graph, spans: dict[str, Range]) -> dict[str, Handover]:
    """The same with the layers that read it."""
    result: dict[str, Handover] = {}
    for layer, readers in _readers(graph, spans).items():
        ranges = {spans[name] for name in readers.int8}
        if len(ranges) != 1 or readers.needs_floats or graph.entries[layer] != 1:
            continue
        is_clamped = len(readers.clamps) == 1 and not readers.others
        requantization = Requantization(ranges.pop(), readers.clamps[0] if is_clamped else None)
        result[layer] = Handover(requantization, frozenset(readers.int8))
    return result


def _readers(graph: Graph, spans: dict[str, Range]) -> dict[str, _Readers]:
    source_of: dict[int, str] = {}  # tensor → the int8 layer whose values it holds
    raw: set[int] = set()  # those that are a layer's output itself
    indices: dict[int, str] = {}  # the index outputs of max-pooling
    readers: dict[str, _Readers] = {}
    for operation in graph.operations:
        for tensor in dict.fromkeys(operation.reads):
            if tensor in indices:
                readers[indices[tensor]].needs_floats = True
            if tensor in source_of:
                _note(operation, readers[source_of[tensor]], spans, is_raw=tensor in raw)
        _follow(operation, source_of, raw, indices, readers, spans)
    for tensor in graph.outputs & source_of.keys():
        readers[source_of[tensor]].needs_floats = True
    return readers


def _note(
    operation: Operation, readers: _Readers, spans: dict[str, Range], *, is_raw: bool
) -> None:
    """Record that an operator reads a layer's values; for one that needs floats, they would be
    rounded for nothing and converted back.
    """
    if operation.layer in spans and operation.name in PRODUCTS:
        readers.int8.add(operation.layer)
    elif operation.name not in (*MOVES, *CLAMPS):
        readers.needs_floats = True
    if is_raw and operation.name in CLAMPS:
        readers.clamps.append(clamp_of(operation))
    elif is_raw:
        readers.others += 1


def _follow(
    operation: Operation,
    source_of: dict[int, str],
    raw: set[int],
    indices: dict[int, str],
    readers: dict[str, _Readers],
    spans: dict[str, Range],
) -> None:
    """Record whose values the operator's results are."""
    source = next((source_of[tensor] for tensor in operation.reads if tensor in source_of), None)
    for tensor in operation.makes:
        source_of.pop(tensor, None)
    if operation.layer in spans and operation.name in PRODUCTS:
        readers.setdefault(operation.layer, _Readers())
        source_of[operation.makes[0]] = operation.layer
        raw.add(operation.makes[0])
    elif source is not None and operation.name in (*MOVES, *CLAMPS):
        source_of[operation.makes[0]] = source
        indices.update(dict.fromkeys(operation.makes[1:], source))
        # a linear layer reshapes its rows to the shape of its input
        if operation.layer == source and operation.name in MOVES:
            raw.add(operation.makes[0])
            readers[source].others = 0
        else:
            raw.discard(operation.makes[0])


def clamp_of(operation: Operation) -> Clamp:
    """The bounds of an operator of CLAMPS."""
    if operation.name.startswith("relu"):
        return 0.0, None
    # trailing arguments may have been left at their defaults
    low, high = *operation.numbers, *(-1.0, 1.0)[len(operation.numbers) :]
    return float(low), float(high)
