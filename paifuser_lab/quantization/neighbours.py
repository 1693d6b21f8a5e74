"""Which layers hand their output on in int8, because the next layer reads it so; read from what the
operators did.
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
    clamps: list[Clamp] = field(default_factory=list)  # what reads the output itself and clamps it
    others: int = 0  # what reads the output itself and does not
    is_spoiled: bool = False


@dataclass(frozen=True)
class Handover:
    """How a layer passes on in int8, and the layers that read it so."""

    requantization: Requantization
    readers: frozenset[str]


def requantizations(graph: Graph, spans: dict[str, Range]) -> dict[str, Requantization]:
    """How int8 layers pass on; in int8 where int8 layers alone read it, and nothing writes over it
    or gives it out.
    """
    return {layer: handover.requantization for layer, handover in handovers(graph, spans).items()}


def handovers(graph: Graph, spans: dict[str, Range]) -> dict[str, Handover]:
    """The same with the layers that read it."""
    found: dict[str, Handover] = {}
    for layer, readers in _readers(graph, spans).items():
        wanted = {spans[name] for name in readers.int8}
        if len(wanted) != 1 or readers.is_spoiled or graph.entries[layer] != 1:
            continue
        is_clamped = len(readers.clamps) == 1 and not readers.others
        requantization = Requantization(wanted.pop(), readers.clamps[0] if is_clamped else None)
        found[layer] = Handover(requantization, frozenset(readers.int8))
    return found


def _readers(graph: Graph, spans: dict[str, Range]) -> dict[str, _Readers]:
    made_by: dict[int, str] = {}  # tensor → the int8 layer that it comes from
    raw: set[int] = set()  # those of them that are the layer's output itself
    indices: dict[int, str] = {}  # where a pooling found its greatest
    readers: dict[str, _Readers] = {}
    for one in graph.operations:
        for tensor in dict.fromkeys(one.reads):
            if tensor in indices:
                readers[indices[tensor]].is_spoiled = True
            if tensor in made_by:
                _note(one, readers[made_by[tensor]], spans, is_raw=tensor in raw)
        _follow(one, made_by, raw, indices, readers, spans)
    for tensor in graph.outputs & made_by.keys():
        readers[made_by[tensor]].is_spoiled = True
    return readers


def _note(one: Operation, readers: _Readers, spans: dict[str, Range], *, is_raw: bool) -> None:
    """An operator reads a layer's values; one that wants numbers would have them rounded for
    nothing, and converted back.
    """
    if one.layer in spans and one.name in PRODUCTS:
        readers.int8.add(one.layer)
    elif one.name not in (*MOVES, *CLAMPS):
        readers.is_spoiled = True
    if is_raw and one.name in CLAMPS:
        readers.clamps.append(clamp_of(one))
    elif is_raw:
        readers.others += 1


def _follow(
    one: Operation,
    made_by: dict[int, str],
    raw: set[int],
    indices: dict[int, str],
    readers: dict[str, _Readers],
    spans: dict[str, Range],
) -> None:
    """Whose values the operator's results are."""
    source = next((made_by[tensor] for tensor in one.reads if tensor in made_by), None)
    for tensor in one.makes:
        made_by.pop(tensor, None)
    if one.layer in spans and one.name in PRODUCTS:
        readers.setdefault(one.layer, _Readers())
        made_by[one.makes[0]] = one.layer
        raw.add(one.makes[0])
    elif source is not None and one.name in (*MOVES, *CLAMPS):
        made_by[one.makes[0]] = source
        indices.update(dict.fromkeys(one.makes[1:], source))
        if (
            one.layer == source and one.name in MOVES
        ):  # a linear layer gives its rows their shape again
            raw.add(one.makes[0])
            readers[source].others = 0
        else:
            raw.discard(one.makes[0])


def clamp_of(one: Operation) -> Clamp:
    """Between what an operator of CLAMPS keeps values."""
    if one.name.startswith("relu"):
        return 0.0, None
    low, high = (
        *one.numbers,
        *(-1.0, 1.0)[len(one.numbers) :],
    )  # what is the default may have been left out at the end
    return float(low), float(high)
