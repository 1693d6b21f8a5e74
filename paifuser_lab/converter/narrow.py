"""The weights and arithmetic of an ONNX file in 16 bits; inputs and outputs stay as they are."""

from __future__ import annotations

from typing import Any

import numpy
import onnx
import torch

NORMS = ("LayerNormalization", "InstanceNormalization", "GroupNormalization")
# what overflows or loses too much in fp16 stays in fp32, besides the converter's own list
UNSAFE_IN_FP16 = (
    *NORMS,
    "Softmax",
    "LogSoftmax",
    "Exp",
    "Log",
    "Pow",
    "ReduceSum",
    "ReduceMean",
    "ReduceL2",
    "ReduceSumSquare",
    "ReduceLogSumExp",
)
LEAST_VALUES = 256  # of a weight that is worth a node of its own
STORED = "_bf16"  # ends the names of tensors in bf16
IN_FP32 = "computed with in fp32: ONNX Runtime has no kernels in bf16 on a CPU"


def to_fp16(model: Any) -> tuple[Any, list[str]]:
    """The model in fp16, and a note on what stays in fp32."""
    from onnxruntime.transformers import float16

    blocked = {*float16.DEFAULT_OP_BLOCK_LIST, *UNSAFE_IN_FP16}
    kept = sorted({node.op_type for node in model.graph.node} & blocked)
    converted = float16.convert_float_to_float16(
        model, keep_io_types=True, op_block_list=sorted(blocked)
    )
    _without_twins(converted.graph)
    _sort(converted.graph)
    del converted.graph.value_info[:]  # the converter leaves some of them wrong
    converted = onnx.shape_inference.infer_shapes(converted)
    return converted, [f"stays in fp32: {', '.join(kept)}"] if kept else []


def to_bf16(model: Any) -> list[str]:
    """Store the weights in bf16, widened where they are read; return a note."""
    graph, widened = model.graph, []
    for tensor in graph.initializer:
        values = onnx.numpy_helper.to_array(tensor)
        if tensor.data_type != onnx.TensorProto.FLOAT or values.size < LEAST_VALUES:
            continue
        name, rounded = tensor.name, torch.from_numpy(values.copy()).to(torch.bfloat16)
        stored = onnx.TensorProto(
            name=f"{name}{STORED}",
            dims=tensor.dims,
            data_type=onnx.TensorProto.BFLOAT16,
            raw_data=rounded.view(torch.int16).numpy().tobytes(),
        )
        tensor.CopyFrom(stored)
        widened.append(_cast(stored.name, name, onnx.TensorProto.FLOAT))
    replace_nodes(graph, [*widened, *graph.node])
    return [f"{len(widened)} weights are stored in bf16 and {IN_FP32}"]


def widen_bf16(model: Any) -> list[str]:
    """Let a model whose values are in bf16 compute in fp32, of the rounded values: its weights stay
    stored in bf16, and casts to bf16 still round. Return a note; none where nothing is in bf16.
    """
    bf16, fp32 = onnx.TensorProto.BFLOAT16, onnx.TensorProto.FLOAT
    graph, nodes = model.graph, []
    stored = [tensor for tensor in graph.initializer if tensor.data_type == bf16]
    ends = (*graph.input, *graph.output)
    if not stored and not any(_casts_to(node, bf16) for node in graph.node):
        return []
    if any(value.type.tensor_type.elem_type == bf16 for value in ends):
        return []  # its callers give or get bf16, too
    for tensor in stored:
        name, tensor.name = tensor.name, f"{tensor.name}{STORED}"
        nodes.append(_cast(tensor.name, name, fp32))
    for node in graph.node:
        nodes.append(node)
        if _casts_to(node, bf16):
            rounded = f"{node.output[0]}{STORED}"
            nodes.append(_cast(rounded, node.output[0], fp32))
            node.output[0] = rounded
        for attribute in node.attribute:
            if attribute.HasField("t") and attribute.t.data_type == bf16:
                wide = onnx.numpy_helper.to_array(attribute.t).astype(numpy.float32)
                attribute.t.CopyFrom(onnx.numpy_helper.from_array(wide, attribute.t.name))
    replace_nodes(graph, nodes)
    del graph.value_info[:]
    return [f"its values are rounded to bf16 and {IN_FP32}"]


def _casts_to(node: Any, kind: int) -> bool:
    return node.op_type == "Cast" and any(
        entry.name == "to" and entry.i == kind for entry in node.attribute
    )


def _cast(source: str, made: str, kind: int) -> Any:
    return onnx.helper.make_node("Cast", [source], [made], name=f"{made}_widened", to=kind)


def widen_norms(model: Any) -> None:
    """Let norms with weights wider than their input compute in that width, as under autocast."""
    graph = model.graph
    known = (*graph.value_info, *graph.input)
    types = {value.name: value.type.tensor_type.elem_type for value in known}
    types |= {tensor.name: tensor.data_type for tensor in graph.initializer}
    nodes = []
    for node in graph.node:
        own, wide = (types.get(name) for name in (*node.input, "", "")[:2])
        if node.op_type not in NORMS or None in (own, wide) or own == wide:
            nodes.append(node)
            continue
        before, after = f"{node.input[0]}_widened_{node.name}", f"{node.output[0]}_wide"
        nodes += [
            onnx.helper.make_node("Cast", [node.input[0]], [before], name=before, to=wide),
            node,
            onnx.helper.make_node("Cast", [after], [node.output[0]], name=after, to=own),
        ]
        node.input[0], node.output[0] = before, after
    replace_nodes(graph, nodes)


def replace_nodes(graph: Any, nodes: list[Any]) -> None:
    """Give a graph these nodes, also its own: copies, since clearing the graph clears those."""
    copies = [onnx.NodeProto.FromString(node.SerializeToString()) for node in nodes]
    del graph.node[:]
    graph.node.extend(copies)


def _without_twins(graph: Any) -> None:
    """Drop casts that are there twice: the converter adds one for each node that reads a tensor."""
    made: set[str] = set()
    kept = []
    for node in graph.node:
        if node.op_type == "Cast" and node.output[0] in made:
            continue
        made.update(node.output)
        kept.append(node)
    replace_nodes(graph, kept)


def _sort(graph: Any) -> None:
    """Put each node behind those that it reads: the converter appends its casts at the end."""
    nodes = list(graph.node)
    maker = {name: at for at, node in enumerate(nodes) for name in node.output}
    done: dict[int, None] = {}
    for first in range(len(nodes)):
        waiting = [first]
        while waiting:
            at = waiting[-1]
            before = [maker[name] for name in _reads(nodes[at]) if name in maker]
            missing = [other for other in before if other not in done and other != at]
            if missing and at not in done:
                waiting += missing
            else:
                done[waiting.pop()] = None
    replace_nodes(graph, [nodes[at] for at in done])


def _reads(node: Any) -> list[str]:
    """The tensors that a node reads, also inside its subgraphs."""
    names = list(node.input)
    for attribute in node.attribute:
        if attribute.HasField("g"):
            names += [name for inner in attribute.g.node for name in _reads(inner)]
    return names
