"""Finds activations that exporters write as several nodes, so that they become one layer."""

from __future__ import annotations

from dataclasses import dataclass, field
from math import isclose, sqrt

import onnx


@dataclass
class _Graph:
    """The nodes of a graph by what they make and who reads it."""

    outputs: set[str]
    constants: dict[str, float]
    maker: dict[str, onnx.NodeProto] = field(default_factory=dict)
    readers: dict[str, list[onnx.NodeProto]] = field(default_factory=dict)

    def reader(self, name: str, kind: str) -> onnx.NodeProto | None:
        """The node of this kind that alone reads a value."""
        readers = self.readers.get(name, [])
        is_sole = len(readers) == 1 and name not in self.outputs
        return readers[0] if is_sole and readers[0].op_type == kind else None

    def is_number(self, name: str, number: float) -> bool:
        value = self.constants.get(name)
        return value is not None and isclose(value, number, rel_tol=1e-3)

    def other(self, node: onnx.NodeProto, name: str) -> str:
        """The other of a node's two inputs; '' if it has none."""
        names: list[str] = list(node.input)
        if len(names) != 2 or name not in names:
            return ""
        names.remove(name)
        return names[0]

    def scaled(self, name: str, factor: float) -> str:
        """What a value is the multiple of, by this factor; '' if it is none."""
        node = self.maker.get(name)
        if node is None or node.op_type not in ("Mul", "Div") or len(node.input) != 2:
            return ""
        left, right = str(node.input[0]), str(node.input[1])
        if node.op_type == "Div":
            return left if self.is_number(right, 1 / factor) else ""
        return (
            left if self.is_number(right, factor) else right if self.is_number(left, factor) else ""
        )


def rewritten(graph: onnx.GraphProto) -> list[onnx.NodeProto]:
    """The nodes, with one for a GELU or SiLU of several, which stay and are read by nobody."""
    nodes = list(graph.node)
    view = _Graph({value.name for value in graph.output}, _numbers(graph))
    for node in nodes:
        for name in node.output:
            view.maker[name] = node
        for name in node.input:
            view.readers.setdefault(name, []).append(node)
    replaced: dict[str, onnx.NodeProto] = {}
    for node in nodes:
        found = _gelu(view, node) if node.op_type == "Erf" else None
        found = _silu(view, node) if node.op_type == "Sigmoid" else found
        if found is not None:
            replaced[found.output[0]] = found
    return [replaced.get(node.output[0], node) if node.output else node for node in nodes]


def _gelu(view: _Graph, erf: onnx.NodeProto) -> onnx.NodeProto | None:
    """0.5 · x · (1 + erf(x / √2)), in the orders in which exporters write it."""
    x = view.scaled(erf.input[0], 1 / sqrt(2))
    plus = view.reader(erf.output[0], "Add")
    if not x or plus is None or not view.is_number(view.other(plus, erf.output[0]), 1.0):
        return None
    product = view.reader(plus.output[0], "Mul")
    if product is None:
        return None
    other = view.other(product, plus.output[0])
    if other == x:
        half = view.reader(product.output[0], "Mul")
        is_half = half is not None and view.is_number(view.other(half, product.output[0]), 0.5)
        return _single("Gelu", x, half) if half is not None and is_half else None
    if view.scaled(other, 0.5) == x:
        return _single("Gelu", x, product)
    if view.is_number(other, 0.5):
        last = view.reader(product.output[0], "Mul")
        is_last = last is not None and view.other(last, product.output[0]) == x
        return _single("Gelu", x, last) if last is not None and is_last else None
    return None


def _silu(view: _Graph, sigmoid: onnx.NodeProto) -> onnx.NodeProto | None:
    """x · sigmoid(x)."""
    product = view.reader(sigmoid.output[0], "Mul")
    if product is None or view.other(product, sigmoid.output[0]) != sigmoid.input[0]:
        return None
    return _single("Silu", sigmoid.input[0], product)


def _single(kind: str, x: str, last: onnx.NodeProto) -> onnx.NodeProto:
    node = onnx.helper.make_node(kind, [x], [last.output[0]], name=last.name)
    node.metadata_props.extend(last.metadata_props)
    return node


def _numbers(graph: onnx.GraphProto) -> dict[str, float]:
    """The constants of one floating-point number."""
    tensors = {tensor.name: tensor for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type == "Constant" and node.attribute and node.attribute[0].name == "value":
            tensors[node.output[0]] = node.attribute[0].t
    return {
        name: float(onnx.numpy_helper.to_array(tensor).reshape(-1)[0])
        for name, tensor in tensors.items()
        if tensor.data_type in (onnx.TensorProto.FLOAT, onnx.TensorProto.FLOAT16)
        and list(tensor.dims) in ([], [1])
        and tensor.data_location != onnx.TensorProto.EXTERNAL
    }
