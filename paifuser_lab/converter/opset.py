"""Rewrite an ONNX model for an older opset, by the operators' own schemas.

onnx's version converter has no step from 14 to 13 for Add, Relu or Reshape, and forgets each node's
metadata. A node also is valid in the older opset if its inputs, outputs and attributes are in the
older schema; if an attribute that is not has its default, which stands for what the operator did
before; or if an input that was an attribute then is a constant. Types are checked by onnx, and
values by running the file.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import numpy
import onnx

from ..errors import ExportError, first_line
from .narrow import replace_nodes
from .origins import KEY

LOWEST = 11
DEFAULT_DOMAIN = ("", "ai.onnx")
NORM_PARTS = ("mean", "centred", "squares", "variance", "stable", "deviation", "normal")
OLD_IR = 7  # of the runtimes that read opset 13 only
OPTION = onnx.defs.OpSchema.FormalParameterOption


def opset_of(model: Any) -> int:
    """The opset of a model's standard operators, as the file says it."""
    return max(
        (entry.version for entry in model.opset_import if entry.domain in DEFAULT_DOMAIN), default=0
    )


def lower_opset(name: str, model: Any, opset: int) -> None:
    """Change a model to an older opset; raise with the lowest that works and what is to blame."""
    own = opset_of(model)
    if opset < LOWEST:
        raise ExportError(
            f"{name} cannot be exported in opset {opset}: files are written from opset {LOWEST} "
            "on; choose that or a later one."
        )
    if obstacle := _first_obstacle(model, own, opset):
        lowest = next(
            version
            for version in range(opset + 1, own + 1)
            if version == own or not _first_obstacle(model, own, version)
        )
        raise ExportError(
            f"{name} cannot be exported in opset {opset}: {obstacle}; the lowest that works is "
            f"{lowest}."
        )
    _decompose(model.graph, own, opset)
    constants = _constants(model.graph)
    for node in list(_nodes(model.graph)):
        _rewrite(node, own, opset, constants)
    _drop_unread(model.graph, constants)
    for entry in model.opset_import:
        if entry.domain in DEFAULT_DOMAIN:
            entry.version = opset
    model.ir_version = max(OLD_IR, onnx.helper.find_min_ir_version_for(model.opset_import, True))
    try:
        onnx.checker.check_model(model, full_check=True)
    except (onnx.checker.ValidationError, onnx.shape_inference.InferenceError) as error:
        raise ExportError(
            f"{name} cannot be exported in opset {opset}: {first_line(error).rstrip('.')}; "
            "choose a later opset."
        ) from error


def _first_obstacle(model: Any, own: int, opset: int) -> str:
    """Which node an older opset cannot express, and why; '' where it can express all."""
    constants = _constants(model.graph)
    return next(
        (
            f"{_named(node)} {reason}"
            for node in _nodes(model.graph)
            if (reason := _reason(node, own, opset, constants))
        ),
        "",
    )


def _reason(node: Any, own: int, opset: int, constants: dict[str, Any]) -> str:
    """Why a node cannot be expressed in an older opset; '' where it can."""
    schemas = _schemas(node, own, opset)
    if schemas is None or (schemas[1] is None and _is_decomposable(node)):
        return ""
    new, old = schemas
    if old is None:
        versions = range(opset, own + 1)
        first = next(version for version in versions if onnx.defs.has(node.op_type, version))
        return f"exists from opset {first} on"
    for attribute in node.attribute:
        has_it = attribute.name in old.attributes or _is_default(attribute, new)
        if not has_it and not _is_harmless(node, attribute, constants):
            return f"uses '{attribute.name}', which opset {opset} does not have"
    for at, read in enumerate(node.input):
        formal = _formal(new, at)
        if not read and at < len(old.inputs) and old.inputs[at].option == OPTION.Single:
            return f"leaves out '{formal}', which opset {opset} needs"
        if not read or _takes(old, at, formal):
            continue
        if formal not in old.attributes:
            return f"reads '{formal}', which opset {opset} does not have"
        if read not in constants:
            return f"reads '{formal}' from a tensor, which opset {opset} takes as a constant only"
    if len([made for made in node.output if made]) > len(old.outputs) and not _is_variadic(old):
        return f"has {len(node.output)} outputs, and in opset {opset} {len(old.outputs)}"
    return ""


def _is_harmless(node: Any, attribute: Any, constants: dict[str, Any]) -> bool:
    """Whether an attribute changes nothing of what the older operator does here."""
    if (node.op_type, attribute.name) == ("Reshape", "allowzero"):  # what a 0 in a shape means
        shape = constants.get(node.input[1])
        return shape is None or bool(onnx.numpy_helper.to_array(shape).all())
    if (node.op_type, attribute.name) == ("Split", "num_outputs"):  # in equal parts, as before
        return len(node.input) == 1 and bool(attribute.i == len(node.output))
    return False


def _rewrite(node: Any, own: int, opset: int, constants: dict[str, Any]) -> None:
    schemas = _schemas(node, own, opset)
    if schemas is None:
        return
    new, old = schemas
    written = {attribute.name for attribute in node.attribute}
    kept = [attribute for attribute in node.attribute if attribute.name in old.attributes]
    for name, formal in new.attributes.items():
        # a default that has changed is written out
        before = old.attributes.get(name)
        if name not in written and before is not None and _value(formal) != _value(before):
            kept.append(formal.default_value)
    inputs = list(node.input)
    for at, read in enumerate(node.input):
        formal = _formal(new, at)
        if not _takes(old, at, formal) and formal in old.attributes:
            if read:
                values = onnx.numpy_helper.to_array(constants[read])
                kept.append(onnx.helper.make_attribute(formal, values.reshape(-1).tolist()))
            inputs[at] = ""
    while inputs and not inputs[-1]:
        inputs.pop()
    kept = [onnx.AttributeProto.FromString(entry.SerializeToString()) for entry in kept]
    del node.attribute[:], node.input[:]
    node.attribute.extend(kept)
    node.input.extend(inputs)


def _decompose(graph: Any, own: int, opset: int) -> None:
    """Write layer norms as older operators, where the older opset does not have them."""
    nodes = []
    for node in graph.node:
        schemas = _schemas(node, own, opset)
        is_new = schemas is not None and schemas[1] is None
        nodes += _layer_norm(node, graph) if is_new else [node]
    replace_nodes(graph, nodes)


def _is_decomposable(node: Any) -> bool:
    """Whether older operators can stand for it: a norm over the last dimensions, of one output."""
    axes = [entry.i for entry in node.attribute if entry.name == "axis"] or [-1]
    return node.op_type == "LayerNormalization" and axes[0] < 0 and len(node.output) == 1


def _layer_norm(node: Any, graph: Any) -> list[Any]:
    """A layer norm as the operators that ONNX Runtime fuses into one again."""
    attributes = {entry.name: onnx.helper.get_attribute_value(entry) for entry in node.attribute}
    axis, prefix, (x, *affine) = attributes.get("axis", -1), node.output[0], node.input
    axes = list(range(axis, 0))
    for name, value in (("two", 2.0), ("epsilon", attributes.get("epsilon", 1e-5))):
        scalar = onnx.numpy_helper.from_array(
            numpy.asarray(value, numpy.float32), f"{prefix}_{name}"
        )
        graph.initializer.append(scalar)
    names = {part: f"{prefix}_{part}" for part in ("two", "epsilon", *NORM_PARTS)}
    made = [
        ("ReduceMean", [x], "mean"),
        ("Sub", [x, names["mean"]], "centred"),
        ("Pow", [names["centred"], names["two"]], "squares"),
        ("ReduceMean", [names["squares"]], "variance"),
        ("Add", [names["variance"], names["epsilon"]], "stable"),
        ("Sqrt", [names["stable"]], "deviation"),
        ("Div", [names["centred"], names["deviation"]], "normal"),
    ]
    nodes = []
    for kind, inputs, part in made:
        new = onnx.helper.make_node(kind, inputs, [names[part]], name=f"{node.name}_{part}")
        if kind == "ReduceMean":
            new.attribute.append(onnx.helper.make_attribute("axes", axes))
        nodes.append(new)
    last = names["normal"]
    for kind, weight in zip(("Mul", "Add"), filter(None, affine), strict=False):
        output = f"{prefix}_{kind}"
        nodes.append(onnx.helper.make_node(kind, [last, weight], [output], name=output))
        last = output
    nodes[-1].output[0] = node.output[0]
    for new in nodes:
        new.metadata_props.extend(node.metadata_props)
    return nodes


def _schemas(node: Any, own: int, opset: int) -> tuple[Any, Any] | None:
    """The operator's schema now and then; None where it is the same, or not a standard one."""
    if node.domain not in DEFAULT_DOMAIN:
        return None
    new = onnx.defs.get_schema(node.op_type, own)
    try:
        old = onnx.defs.get_schema(node.op_type, opset)
    except onnx.defs.SchemaError:
        return new, None
    return None if old.since_version == new.since_version else (new, old)


def _formal(schema: Any, at: int) -> str:
    """The name of an operator's input at a place; the last may stand for many."""
    return str(schema.inputs[min(at, len(schema.inputs) - 1)].name)


def _takes(old: Any, at: int, formal: str) -> bool:
    """Whether the older operator takes this input as an input."""
    if at >= len(old.inputs):
        return bool(old.inputs) and _is_variadic(old)
    return old.inputs[at].name == formal or formal not in old.attributes


def _is_variadic(schema: Any) -> bool:
    formals = (*schema.inputs[-1:], *schema.outputs[-1:])
    return any(formal.option == OPTION.Variadic for formal in formals)


def _is_default(attribute: Any, schema: Any) -> bool:
    formal = schema.attributes.get(attribute.name)
    return formal is not None and onnx.helper.get_attribute_value(attribute) == _value(formal)


def _value(formal: Any) -> Any:
    """The default of an attribute; None where there is none."""
    default = formal.default_value
    return onnx.helper.get_attribute_value(default) if default.name else None


def _nodes(graph: Any) -> Iterator[Any]:
    """The nodes of a graph and of those inside its nodes."""
    for node in graph.node:
        yield node
        for attribute in node.attribute:
            for inner in (*([attribute.g] if attribute.HasField("g") else []), *attribute.graphs):
                yield from _nodes(inner)


def _constants(graph: Any) -> dict[str, Any]:
    """The constant tensors of a graph, weights and constant nodes, by name."""
    constants = {tensor.name: tensor for tensor in graph.initializer}
    for node in _nodes(graph):
        if node.op_type == "Constant" and node.attribute[0].HasField("t"):
            constants[node.output[0]] = node.attribute[0].t
    return constants


def _drop_unread(graph: Any, constants: dict[str, Any]) -> None:
    """Remove the weights that no node reads any more."""
    read = {name for node in _nodes(graph) for name in node.input}
    read |= {value.name for value in graph.output}
    kept = [tensor for tensor in graph.initializer if tensor.name in read]
    if len(kept) < len(graph.initializer):
        del graph.initializer[:]
        graph.initializer.extend(kept)


def _named(node: Any) -> str:
    """A node as messages name it: its operator, and its layer where the file has it."""
    written = (entry.value for entry in node.metadata_props if entry.key == KEY)
    parts = json.loads(next(written, "[]"))
    layer = str(parts[0][0]) if parts else ""  # '' also where it is the model
    return f"operator {node.op_type}{f' of layer {layer!r}' if layer else ''}"
