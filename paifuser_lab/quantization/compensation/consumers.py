"""Which layers alone read what a layer makes, and what is done to it on the way; read from what the
operators did.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...model.graph import Graph, Operation

PRODUCTS = ("convolution", "addmm", "mm", "linear")
RELUS = ("relu", "relu_")
CLAMPS = ("hardtanh", "hardtanh_")
SHAPES = ("view", "_unsafe_view", "detach", "alias")


@dataclass
class Consumers:
    """The layers that read a layer's output, the operators that it goes through before, and whether
    all of that was understood.
    """

    layers: list[str] = field(default_factory=list)
    passed: set[str] = field(default_factory=set)
    is_alone: bool = True


def sole_consumers(
    graph: Graph,
    makers: Mapping[str, int],
    operators: tuple[str, ...],
    passes: tuple[str, ...],
    readers: set[str],
) -> dict[str, Consumers]:
    """Of each maker (and its number of channels) whose output goes through `passes` to `readers`,
    and nowhere else.
    """
    consumers: dict[str, Consumers] = {}
    made_by: dict[int, str] = {}
    for one in graph.operations:
        sources = dict.fromkeys(made_by[tensor] for tensor in one.reads if tensor in made_by)
        for source in sources:
            _note(one, consumers[source], makers[source], passes, readers)
        for tensor in one.makes:
            made_by.pop(tensor, None)
        if one.layer in makers and one.name in operators:
            consumers.setdefault(one.layer, Consumers())
            made_by[one.makes[0]] = one.layer
        elif one.name in passes and sources:
            made_by[one.makes[0]] = next(iter(sources))
    given_out = {made_by[tensor] for tensor in graph.outputs & made_by.keys()}
    return {
        layer: one
        for layer, one in consumers.items()
        if one.is_alone and one.layers and layer not in given_out
    }


def _note(
    one: Operation, readers: Consumers, channels: int, passes: tuple[str, ...], wanted: set[str]
) -> None:
    """An operator reads what a layer made."""
    if one.layer in wanted and one.name in PRODUCTS:
        readers.layers.append(one.layer)
    elif one.name not in passes or (one.name in SHAPES and one.shapes[0][-1:] != (channels,)):
        readers.is_alone = False
    elif one.name not in SHAPES:
        readers.passed.add(one.name)
