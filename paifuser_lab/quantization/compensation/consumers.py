"""Which layers alone read a layer's output, and which operators it passes on the way; read from one
run.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from ...model.dataflow import Dataflow
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
    flow = Dataflow(graph)
    consumers: dict[str, Consumers] = {}
    for node, operation in enumerate(flow.nodes):
        if operation.layer in makers and operation.name in operators:
            consumer = consumers.setdefault(operation.layer, Consumers())
            for *passed, end in flow.paths(node, passes):
                _note([flow.nodes[at] for at in passed], makers[operation.layer], consumer)
                if flow.nodes[end].layer in readers and flow.nodes[end].name in PRODUCTS:
                    consumer.layers.append(flow.nodes[end].layer)
                else:
                    consumer.is_alone = False
    return {layer: own for layer, own in consumers.items() if own.is_alone and own.layers}


def _note(passed: list[Operation], channels: int, consumers: Consumers) -> None:
    """Record the operators on the way; one that reshapes has to leave the channels last."""
    for operation in passed:
        if operation.name not in SHAPES:
            consumers.passed.add(operation.name)
        elif operation.shapes[0][-1:] != (channels,):
            consumers.is_alone = False
