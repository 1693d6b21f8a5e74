"""The graph of one call as a record: operators, and the tensors between them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from torch import nn

from ..errors import first_line
from ..records.model_graph import GraphOperator, GraphTensor, ModelGraph
from .graph import Graph, observe

INPUT, OUTPUT = "input", "output"


def model_graph(model: nn.Module, run: Callable[[], Any], name: str) -> ModelGraph:
    """The graph of a call. Where the call cannot be recorded, the layers in the order of the code,
    with a note that says why.
    """
    classes = {layer: type(module).__name__ for layer, module in model.named_modules()}
    try:
        graph = observe(model, run)
    except Exception as error:  # the model's own code may raise anything
        return _layers_alone(name, classes, first_line(error))
    operators = [GraphOperator(name=INPUT, layer="")]
    operators += [GraphOperator(name=one.name, layer=one.layer) for one in graph.operations]
    operators.append(GraphOperator(name=OUTPUT, layer=""))
    return ModelGraph(
        workload=name, operators=tuple(operators), tensors=_between(graph), classes=classes
    )


def _between(graph: Graph) -> tuple[GraphTensor, ...]:
    """Each tensor from its maker to each of its readers; one that is written in place comes from
    the operator that wrote it last.
    """
    maker: dict[int, int] = {}
    weights = set(graph.weights.values())
    found: dict[tuple[int, int, int], GraphTensor] = {}

    def add(target: int, read: int) -> None:
        source = maker.get(read, 0)
        if source == 0 and (read in weights or read in graph.constants):
            return
        shape, size = graph.sizes[read]
        found[source, target, read] = GraphTensor(
            source=source, target=target, name=read, shape=shape, bytes=size
        )

    for number, operation in enumerate(graph.operations, start=1):
        for read in operation.reads:
            add(number, read)
        maker |= dict.fromkeys(operation.makes, number)
    for read in sorted(graph.outputs):
        add(len(graph.operations) + 1, read)
    return tuple(found.values())


def _layers_alone(name: str, classes: dict[str, str], why: str) -> ModelGraph:
    """The innermost layers, each after the one before it in the code."""
    parents = {layer.rpartition(".")[0] for layer in classes if layer}
    leaves = [layer for layer in classes if layer not in parents]
    return ModelGraph(
        workload=name,
        operators=tuple(GraphOperator(name=classes[layer], layer=layer) for layer in leaves),
        tensors=tuple(
            GraphTensor(source=index, target=index + 1, name=index)
            for index in range(len(leaves) - 1)
        ),
        classes=classes,
        note=f"The call could not be recorded ({why.rstrip('.')}); these are the model's layers, "
        "in the order of its code.",
    )
