"""Which layers alone read a layer's output, and which operators it passes on the way; read from one
run.
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
    """The layers that read a layer's output, the operators in between, and whether nothing else
    reads it.
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
    """For each maker (with its number of channels) whose output goes through `passes` to `readers`
    and nowhere else.
    """
    consumers: dict[str, Consumers] = {}
    maker_of: dict[int, str] = {}
    for operation in graph.operations:
        sources = dict.fromkeys(
            maker_of[tensor] for tensor in operation.reads if tensor in maker_of
        )
        for source in sources:
            _note(operation, consumers[source], makers[source], passes, readers)
        for tensor in operation.makes:
            maker_of.pop(tensor, None)
        if operation.layer in makers and operation.name in operators:
            consumers.setdefault(operation.layer, Consumers())
            maker_of[operation.makes[0]] = operation.layer
        elif operation.name in passes and sources:
            maker_of[operation.makes[0]] = next(iter(sources))
    returned = {maker_of[tensor] for tensor in graph.outputs & maker_of.keys()}
    return {
        layer: consumer
        for layer, consumer in consumers.items()
        if consumer.is_alone and consumer.layers and layer not in returned
    }


def _note(
    operation: Operation,
    readers: Consumers,
    channels: int,
    passes: tuple[str, ...],
    layers: set[str],
) -> None:
    """Record that an operator reads a layer's output."""
    if operation.layer in layers and operation.name in PRODUCTS:
        readers.layers.append(operation.layer)
    elif operation.name not in passes or (
        operation.name in SHAPES and operation.shapes[0][-1:] != (channels,)
    ):
        readers.is_alone = False
    elif operation.name not in SHAPES:
        readers.passed.add(operation.name)
