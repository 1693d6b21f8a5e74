"""Which layers and operators each node of an exported graph was made of, also after fusion.

A node's parts are found by its tensors: all earlier nodes between its outputs and the tensors that
the later graph still has. Names of nodes are lost when nodes are fused; those of tensors are kept.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

KEY = "paifuser_lab.parts"  # of a node's metadata in the file
SCOPES = "pkg.torch.onnx.name_scopes"  # written by torch: the path of modules, then the fx node
RULE = "pkg.onnxscript.rewriter.rule_name"
OF_SHAPES = ("Shape", "Size")  # constants, as the shapes of an exported file are fixed
ROOT = "model"  # the name of the exported model in the module that the exporter sees


class Part(NamedTuple):
    """An operator of a layer that a node runs."""

    layer: str
    op: str


@dataclass(frozen=True)
class Node:
    """A node of a graph: its tensors by name, and the parts that it was made of."""

    name: str
    op: str
    inputs: tuple[str, ...]
    outputs: tuple[str, ...]
    parts: tuple[Part, ...] = ()


@dataclass(frozen=True)
class Graph:
    """The nodes of a graph in order, the names of its inputs, and its weights with their size."""

    nodes: tuple[Node, ...]
    inputs: frozenset[str] = field(default_factory=frozenset)
    weight_bytes: Mapping[str, int] = field(default_factory=dict)

    @cached_property
    def maker(self) -> dict[str, int]:
        """The index of the node that makes each tensor."""
        return {output: at for at, node in enumerate(self.nodes) for output in node.outputs}

    @cached_property
    def named(self) -> dict[str, Node]:
        """The nodes by name."""
        return {node.name: node for node in self.nodes if node.name}

    @cached_property
    def variable(self) -> frozenset[str]:
        """The tensors whose values depend on the graph's inputs; the others are constants."""
        names = set(self.inputs)
        for node in self.nodes:
            read = node.inputs[:1] if node.op == "CastLike" else node.inputs
            if node.op not in OF_SHAPES and not names.isdisjoint(read):
                names.update(node.outputs)
        return frozenset(names)

    def between(self, outputs: Iterable[str], known: Collection[str]) -> tuple[Node, ...]:
        """The nodes that make `outputs` from tensors in `known`, in the graph's order."""
        found: set[int] = set()
        waiting = list(outputs)
        while waiting:
            index = self.maker.get(waiting.pop())
            if index is not None and index not in found:
                found.add(index)
                waiting += [name for name in self.nodes[index].inputs if name not in known]
        return tuple(self.nodes[index] for index in sorted(found))

    def parts_between(self, outputs: Iterable[str], known: Collection[str]) -> tuple[Part, ...]:
        """The parts of these nodes, each once; those of constants only if there are no others."""
        nodes = self.between(outputs, known)
        alive = [node for node in nodes if not self.variable.isdisjoint(node.outputs)]
        return tuple(dict.fromkeys(part for node in alive or nodes for part in node.parts))


def exported_graph(model: Any) -> Graph:
    """The graph of a program that torch exported, before it is optimised."""
    nodes = [
        Node(
            node.name or "",
            node.op_type,
            tuple(value.name for value in node.inputs if value is not None),
            tuple(value.name for value in node.outputs),
            _own_part(node),
        )
        for node in model.graph
    ]
    return Graph(tuple(nodes), frozenset(value.name for value in model.graph.inputs))


def write_parts(model: Any, before: Graph) -> None:
    """Write into each node of an optimised program the parts that it was made of."""
    known = {value.name for node in model.graph for value in node.outputs if value.name}
    for node in model.graph:
        outputs = [value.name for value in node.outputs if _is_same(node, value.name, before)]
        parts = before.parts_between(outputs, known | before.inputs) or _own_part(node)
        node.metadata_props[KEY] = json.dumps(parts)


def read_graph(path: Path) -> Graph:
    """The graph of an ONNX file, with the parts that the export wrote."""
    import onnx
    from onnx.helper import tensor_dtype_to_np_dtype

    graph = onnx.load(str(path), load_external_data=False).graph
    weight_bytes = {
        weight.name: prod(weight.dims) * tensor_dtype_to_np_dtype(weight.data_type).itemsize
        for weight in graph.initializer
    }
    nodes = [
        Node(
            node.name,
            node.op_type,
            tuple(filter(None, node.input)),
            tuple(filter(None, node.output)),
            tuple(
                Part(*part)
                for entry in node.metadata_props
                if entry.key == KEY
                for part in json.loads(entry.value)
            ),
        )
        for node in graph.node
    ]
    inputs = frozenset(value.name for value in graph.input) - weight_bytes.keys()
    return Graph(tuple(nodes), inputs, weight_bytes)


def _own_part(node: Any) -> tuple[Part, ...]:
    """The layer that torch's exporter noted at a node, if it did."""
    scopes = ast.literal_eval(node.metadata_props.get(SCOPES, "[]"))
    if len(scopes) < 2:
        return ()
    path = scopes[-2]
    layer = "" if path in ("", ROOT) else path.removeprefix(f"{ROOT}.")
    return (Part(layer, node.op_type),)


def _is_same(node: Any, name: str | None, before: Graph) -> bool:
    """Whether an output is the tensor of that name before: a rewriting may give a new tensor a name
    that has become free.
    """
    index = before.maker.get(name or "")
    if index is None:
        return False
    return before.nodes[index].op == node.op_type or RULE in node.metadata_props
