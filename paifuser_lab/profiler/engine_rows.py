"""The rows of a model that an engine runs: its nodes at the layers that they do the work of.

A node that does the work of several layers counts to the one that leads it; the others are joined
into that row and have no time of their own. The last row has the nodes without a layer and the time
of the call that is in no node, so that rows add up to the model's latency.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from statistics import median
from typing import Any

import numpy

from ..engines import EngineNode
from ..records import ENGINE_ROW, Kernel, LayerProfile, OperatorProfile
from ..records.text import three_figures
from .clock import operator_cost_ms
from .cost import Cost
from .observation import (
    Observation,
    described,
    in_tree_order,
    rolled_up,
    roofline,
    sums_of,
    weights_by_layer,
)

MAX_NAMED = 2  # nodes of a row that are named in "runs as"; the others are counted


def engine_rows(observation: Observation) -> tuple[LayerProfile, ...]:
    """A row a layer in the order of the model's tree, and a last one for the engine itself."""
    led: dict[str, list[EngineNode]] = defaultdict(list)
    for node in observation.nodes:
        led[ENGINE_ROW if node.leader is None else node.leader].append(node)
    joined = _joined(observation.nodes)
    names = in_tree_order(observation.operators.entered)
    selves = {name: _own_figures(observation, name, led[name], joined) for name in names}
    selves[ENGINE_ROW] = _engine_itself(observation, led[ENGINE_ROW], selves)
    return tuple(_with_totals(observation, selves, led))


def _joined(nodes: list[EngineNode]) -> dict[str, str]:
    """The leading layer of each layer that leads no node itself, but has a part in one."""
    leaders = {node.leader for node in nodes}
    into: dict[str, str] = {}
    for node in nodes:
        for part in node.parts:
            if part.layer not in leaders and node.leader is not None:
                into.setdefault(part.layer, node.leader)
    return into


def _own_figures(
    observation: Observation, name: str, led: list[EngineNode], joined: dict[str, str]
) -> dict[str, Any]:
    """The description and own figures of a layer."""
    recorded = observation.operators
    costs = [cost for (layer, _), cost in recorded.costs.items() if layer == name]
    is_leaf = bool(name) and not any(other.startswith(f"{name}.") for other in recorded.entered)
    into = joined.get(name) if is_leaf else None
    row = {
        **described(observation, name, observation.layered.get_submodule(name)),
        "calls": recorded.entered.get(name, 0) if name else 1,
        "flops": sum(cost.flops for cost in costs),
        "macs": sum(cost.macs for cost in costs),
        "reads_from": () if into else tuple(recorded.reads_from.get(name, ())),
        "joined_into": into,
        **_of_nodes(led),
        **_moved(led, costs),
    }
    # eager torch told the format, and fp32 is not what this engine multiplies in
    if observation.engine and observation.engine.computes_in_bf16 and row["dtype"] == "float32":
        row["dtype"] = "bfloat16"
    row["unknown_why"] = _unknown_why(observation, row, led, is_leaf=is_leaf)
    return row | _limits(observation, row, led, joined)


def _of_nodes(led: list[EngineNode]) -> dict[str, Any]:
    """The time of a row's nodes, and their names, the costliest first."""
    runs = _runs_ms(led)
    low, high = numpy.percentile(runs, [25, 75])
    held = [node.held_bytes for node in led if node.held_bytes is not None]
    return {
        "self_ms": float(numpy.median(runs)),
        "self_spread_ms": (float(low), float(high)),
        "peak_bytes": max(held) if held else None,
        "runs_as": _runs_as(led),
        "operators": tuple(_grouped(led, lambda node: node.runs_as, _operator)),
        "kernels": tuple(_grouped(led, lambda node: f"{node.op} {node.kernel}", _kernel)),
    }


def _runs_ms(led: list[EngineNode]) -> numpy.ndarray[Any, Any]:
    """The time of these nodes together in each run."""
    return numpy.sum([node.ms for node in led], axis=0) if led else numpy.zeros(1)


def _runs_as(led: list[EngineNode]) -> str:
    costliest = sorted(led, key=lambda node: -median(node.ms))
    texts = list(dict.fromkeys(node.runs_as for node in costliest))
    more = [f"{len(texts) - MAX_NAMED} more"] if len(texts) > MAX_NAMED else []
    return ", ".join([*texts[:MAX_NAMED], *more])


def _grouped(
    led: list[EngineNode],
    name_of: Callable[[EngineNode], str],
    make: Callable[[str, list[EngineNode]], Any],
) -> Iterable[Any]:
    groups: dict[str, list[EngineNode]] = defaultdict(list)
    for node in led:
        groups[name_of(node)].append(node)
    return (make(name, nodes) for name, nodes in groups.items())


def _operator(name: str, nodes: list[EngineNode]) -> OperatorProfile:
    return OperatorProfile(
        name=name,
        calls=len(nodes),
        ms=sum(median(node.ms) for node in nodes),
        read_bytes=sum(node.read_bytes or 0 for node in nodes),
        written_bytes=sum(node.written_bytes or 0 for node in nodes),
    )


def _kernel(name: str, nodes: list[EngineNode]) -> Kernel:
    return Kernel(name=name, calls=len(nodes), ms=sum(median(node.ms) for node in nodes))


def _moved(led: list[EngineNode], costs: list[Cost]) -> dict[str, int]:
    """The bytes by the engine, else by the layer's own operators; none for a joined layer."""
    parts: Sequence[EngineNode | Cost] = led
    if led and all(node.read_bytes is None for node in led):
        parts = costs
    return {
        "read_bytes": sum(part.read_bytes or 0 for part in parts),
        "written_bytes": sum(part.written_bytes or 0 for part in parts),
    }


def _unknown_why(
    observation: Observation, row: dict[str, Any], led: list[EngineNode], *, is_leaf: bool
) -> dict[str, str]:
    assert observation.recorder is not None
    title, into = observation.recorder.title, row["joined_into"]
    if not led and is_leaf:
        why = (
            f"it runs in the row of '{into}', in one node"
            if into
            else f"no node of {title} carries its name: it was optimised away"
        )
        return dict.fromkeys(("self_ms", "peak_bytes", "bound"), why)
    if not led:
        return {}
    unknown = (
        {} if row["peak_bytes"] is not None else {"peak_bytes": observation.recorder.no_memory}
    )
    if not row["flops"] and not row["read_bytes"] + row["written_bytes"]:
        unknown["bound"] = "neither its arithmetic nor the bytes that it moves are known"
    return unknown


def _limits(
    observation: Observation, row: dict[str, Any], led: list[EngineNode], joined: dict[str, str]
) -> dict[str, Any]:
    """The time of a row's work at each limit of this machine, and the binding limit."""
    if not led or not row["self_ms"]:
        return {}
    here = {row["layer"], *(layer for layer, into in joined.items() if into == row["layer"])}
    costs = observation.operators.costs
    flops = sum(cost.flops for (layer, _), cost in costs.items() if layer in here)
    moved = row["read_bytes"] + row["written_bytes"]
    smallest = min([ms for node in observation.nodes if (ms := median(node.ms)) > 0] or [0.0])
    overhead = min(row["self_ms"], len(led) * min(smallest, operator_cost_ms()))
    limits = roofline(observation, row["dtype"], flops, moved, overhead)
    return limits if limits["roof_ms"] else {}  # nothing is known of its work


def _engine_itself(
    observation: Observation, unnamed: list[EngineNode], selves: dict[str, dict[str, Any]]
) -> dict[str, Any]:
    """The nodes without a layer, and what the call takes beyond its nodes."""
    assert observation.recorder is not None
    title = observation.recorder.title
    of_nodes = _of_nodes(unnamed)
    in_nodes_ms = sum(row["self_ms"] for row in selves.values()) + of_nodes["self_ms"]
    room_ms = max(0.0, median(observation.plain_ms) - in_nodes_ms)
    between_ms = min(observation.between_ms, room_ms)  # recording is no part of the model's time
    low, high = of_nodes["self_spread_ms"]
    why = (
        f"{three_figures(between_ms)} ms of it are in no node of {title}: calling it, handing over "
        "tensors, and what lies between its nodes"
    )
    return {
        "layer": ENGINE_ROW,
        "kind": title,
        "calls": 1,
        **of_nodes,
        "self_ms": of_nodes["self_ms"] + between_ms,
        "self_spread_ms": (low + between_ms, high + between_ms),
        "unknown_why": {"bound": why},
    }


def _with_totals(
    observation: Observation, selves: dict[str, dict[str, Any]], led: dict[str, list[EngineNode]]
) -> Iterable[LayerProfile]:
    """The rows, with the sums over each layer and all inside it; a peak is that of any of them."""
    sums = sums_of(selves, weights_by_layer(observation.layered))
    runs = rolled_up({name: _runs_ms(nodes) for name, nodes in led.items()})
    for name, row in selves.items():
        # the time between the nodes is in no run
        between_ms = sums[name]["total_ms"] - numpy.median(runs[name])
        low, high = numpy.percentile(runs[name], [25, 75]) + between_ms
        yield LayerProfile(
            **row | {"peak_bytes": _peak(name, selves)},
            **sums[name],
            total_spread_ms=(float(low), float(high)),
        )


def _peak(name: str, selves: dict[str, dict[str, Any]]) -> int | None:
    inside = [
        row["peak_bytes"]
        for layer, row in selves.items()
        if row["peak_bytes"] is not None
        and (not name or layer == name or layer.startswith(f"{name}."))
    ]
    return max(inside, default=None)
