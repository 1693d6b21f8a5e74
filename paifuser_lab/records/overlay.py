"""Figures of layers for Google's Model Explorer, which shows them on its graph of the model.

Its nodes are the operators of an exported program, and layers are the groups around them, whose sum
it computes; so a layer's figure is divided among its own operators, and one without any has none.
"""

from __future__ import annotations

import json
from collections import Counter, defaultdict
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from .._files import write_text
from ..errors import FileError

GRAPH = "graph"  # the id that its adapter of exported programs gives
GRADIENT = ({"stop": 0, "bgColor": "#ffffff"}, {"stop": 1, "bgColor": "#e69f00"})


def save_overlay(
    path: str | Path,
    program: Any,
    name: str,
    figures: Mapping[str, float],
    shares: Mapping[tuple[str, str], float] | None = None,
) -> Path:
    """Write the layers' figures as node data; `shares` divides each among its operators."""
    nodes: dict[str, list[tuple[str, str]]] = defaultdict(list)
    for node in program.graph_module.graph.nodes:
        if node.op == "call_function":
            nodes[_layer_of(node)].append((node.name, _operator_of(node)))
    if len(figures) > 1 and not (figures.keys() & nodes.keys()) - {""}:
        raise FileError(
            f"Nothing is written to {Path(path).name}: the program has none of the layers "
            f"{', '.join(list(figures)[1:4])} …; export the model that was measured."
        )
    results: dict[str, dict[str, float]] = {}
    for layer in figures.keys() & nodes.keys():
        alike = Counter(operator for _, operator in nodes[layer])
        parts = {
            node: (shares or {}).get((layer, operator), 0.0) / alike[operator]
            for node, operator in nodes[layer]
        }
        whole = sum(parts.values())
        parts = parts if whole else dict.fromkeys(parts, 1.0)
        whole = whole or len(parts)
        for node, part in parts.items():
            if part:
                results[node] = {"value": figures[layer] * part / whole}
    graph = {"name": name, "results": dict(sorted(results.items())), "gradient": GRADIENT}
    return write_text(path, json.dumps({GRAPH: graph}, indent=1) + "\n")


def _layer_of(node: Any) -> str:
    """The innermost layer around it."""
    layers = [layer for layer, _ in node.meta.get("nn_module_stack", {}).values()]
    return str(layers[-1]) if layers else ""


def _operator_of(node: Any) -> str:
    """The operator as torch's profiler names it."""
    schema = getattr(node.target, "_schema", None)
    return str(schema.name) if schema is not None else node.name
