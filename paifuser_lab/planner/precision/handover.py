"""Which int8 layers could hand their answer on to which: what the program saves by having both in
int8.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

from ...formats import Range
from ...model.copying import copied
from ...model.fold import fold, plan_fold
from ...model.graph import Graph
from ...quantization import outlets, seen
from ...quantization.neighbours import CLAMPS, MOVES, PRODUCTS
from ...workload import Workload

ALIKE = Range(-1.0, 1.0)


@dataclass(frozen=True)
class Handing:
    """One layer's answer that another reads, each of them called once; and how often others would
    have to convert it back.
    """

    giver: str
    taker: str
    others: int


def handings(work: Workload, layers: Iterable[str]) -> list[Handing]:
    """The pairs of neighbours among layers that can be in int8, read from a run with their
    batch-norms folded.
    """
    names = set(layers)
    model = copied(work.model).eval()
    fold(model, [pair for pair in plan_fold(model, seen(work, model)).pairs if pair[0] in names])
    graph = seen(work, model)
    found: list[Handing] = []
    for giver in outlets(graph, dict.fromkeys(names, ALIKE)):
        takers, others = _readers(graph, giver, names)
        once = [taker for taker in takers if graph.entries[taker] == 1]
        found += [Handing(giver, taker, others if taker == once[0] else 0) for taker in once]
    return found


def _readers(graph: Graph, giver: str, names: set[str]) -> tuple[list[str], int]:
    """The layers that read an answer in int8, and how many other operators read it, which
    cannot.
    """
    product = next(one for one in graph.of_layer(giver) if one.name in PRODUCTS)
    values, takers, others = {product.makes[0]}, list[str](), 0
    for one in graph.operations:
        if one is product or not values & set(one.reads):
            continue
        if one.name in (*MOVES, *CLAMPS):
            values.add(one.makes[0])
        elif one.layer in names and one.name in PRODUCTS:
            takers.append(one.layer)
        else:
            others += 1
    return list(dict.fromkeys(takers)), others
