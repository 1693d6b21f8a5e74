"""Which int8 layers could hand their output on to which: what the program saves by having both in
int8.
"""

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

ALIKE = Range(-1.0, 1.0)


@dataclass(frozen=True)
class LayerPair:
    """One layer's output that another reads, each of them called once; and how often others would
    have to convert it back.
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
    found: list[LayerPair] = []
    for giver in requantizations(graph, dict.fromkeys(names, ALIKE)):
        consumers, others = _readers(graph, giver, names)
        once = [consumer for consumer in consumers if graph.entries[consumer] == 1]
        found += [
            LayerPair(giver, consumer, others if consumer == once[0] else 0) for consumer in once
        ]
    return found


def _readers(graph: Graph, giver: str, names: set[str]) -> tuple[list[str], int]:
    """The layers that read an output in int8, and how many other operators read it, which
    cannot.
    """
    product = next(one for one in graph.of_layer(giver) if one.name in PRODUCTS)
    values, consumers, others = {product.makes[0]}, list[str](), 0
    for one in graph.operations:
        if one is product or not values & set(one.reads):
            continue
        if one.name in (*MOVES, *CLAMPS):
            values.add(one.makes[0])
        elif one.layer in names and one.name in PRODUCTS:
            consumers.append(one.layer)
        else:
            others += 1
    return list(dict.fromkeys(consumers)), others
