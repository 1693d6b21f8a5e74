"""Pairs of int8 layers where one can pass its output to the next without a conversion."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...formats import Range
from ...model.copying import copied
from ...model.fold import fold, plan_fold
from ...model.graph import Graph
from ...quantization import requantizations, trace_graph
from ...quantization.neighbours import CLAMPS, MOVES, PRODUCTS
from ...workload import Workload

ANY_RANGE = Range(-1.0, 1.0)  # ranges do not change which layers can be paired


@dataclass(frozen=True)
class LayerPair:
    """A layer whose output another layer reads, each called once; and how many other operators
    would have to convert the output back.
    """

    giver: str
    consumer: str
    others: int


def layer_pairs(work: Workload, layers: Iterable[str]) -> list[LayerPair]:
    """The pairs of neighbours among layers that can be in int8, read from a run with their
    batch-norms folded.
    """
    names = set(layers)
    model = copied(work.model).eval()
    fold(
        model,
        [pair for pair in plan_fold(model, trace_graph(work, model)).pairs if pair[0] in names],
    )
    graph = trace_graph(work, model)
    pairs: list[LayerPair] = []
    for giver in requantizations(graph, dict.fromkeys(names, ANY_RANGE)):
        consumers, others = _readers(graph, giver, names)
        once = [consumer for consumer in consumers if graph.entries[consumer] == 1]
        pairs += [
            LayerPair(giver, consumer, others if consumer == once[0] else 0) for consumer in once
        ]
    return pairs


def _readers(graph: Graph, giver: str, names: set[str]) -> tuple[list[str], int]:
    """The layers that read an output in int8, and the number of other operators that read it."""
    product = next(operation for operation in graph.of_layer(giver) if operation.name in PRODUCTS)
    values, consumers, others = {product.makes[0]}, list[str](), 0
    for operation in graph.operations:
        if operation is product or not values & set(operation.reads):
            continue
        if operation.name in (*MOVES, *CLAMPS):
            values.add(operation.makes[0])
        elif operation.layer in names and operation.name in PRODUCTS:
            consumers.append(operation.layer)
        else:
            others += 1
    return list(dict.fromkeys(consumers)), others
