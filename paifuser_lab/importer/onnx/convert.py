"""Converts an ONNX file to a torch module, operator by operator."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Sequence
from typing import Any

import onnx
import torch
from torch import Tensor, fx

from ...errors import FileError, first_line
from ..limits import NotConvertibleError, identifier, shown
from ..tree import Constant, Traced, Tree
from .operators import OPERATORS, SIZE_RULES, Call, Sizes
from .proto import OnnxFile, tensor_of
from .rewrite import rewritten

STANDARD = ("", "ai.onnx")
SCOPES = "pkg.torch.onnx.name_scopes"
MODEL = "model"  # the name of the exported model in the module that an exporter sees
CONSTANTS = ("value", "value_float", "value_floats", "value_int", "value_ints")
MOST_NAMED = 5  # operators in a message


def obstacles(file: OnnxFile) -> str:
    """Which operators of a file have no counterpart here, as they are named in a note."""
    counts = Counter(
        f"{node.domain}::{node.op_type}" if node.domain not in STANDARD else node.op_type
        for node in file.graph.node
        if node.domain not in STANDARD
        or (node.op_type not in OPERATORS and node.op_type != "Constant")
    )
    named = [f"{name} ({count} ×)" for name, count in counts.most_common(MOST_NAMED)]
    more = f" and {len(counts) - MOST_NAMED} more" if len(counts) > MOST_NAMED else ""
    return ", ".join(shown(name).strip("'\"") for name in named) + more


def convert(file: OnnxFile, examples: Sequence[dict[str, Tensor]]) -> fx.GraphModule:
    """The file as a torch module, open where the examples differ; or a NotConvertibleError."""
    if missing := obstacles(file):
        raise NotConvertibleError(f"it has {missing}, which have no counterpart in torch")
    return _Conversion(file, examples).run()


class _Conversion:
    """The values of a graph while its nodes are converted in order."""

    def __init__(self, file: OnnxFile, examples: Sequence[dict[str, Tensor]]) -> None:
        self.file = file
        self.nodes = rewritten(file.graph)
        self.tree = Tree(len(examples))
        self.values: dict[str, Constant | Traced | Sizes] = {}
        self.joined: dict[str, str] = {}
        reads = Counter(name for node in self.nodes for name in node.input if name)
        reads.update(value.name for value in file.graph.output)
        self.sole = {
            name: node for node in self.nodes for name in node.input if name and reads[name] == 1
        }
        for value in file.inputs:
            metas = [example[value.name].to("meta") for example in examples]
            self.values[value.name] = self.tree.input(value.name, metas)

    def run(self) -> fx.GraphModule:
        for index, node in enumerate(self.nodes):
            if node.output and node.output[0] in self.joined:
                self.values[node.output[0]] = self.values[self.joined[node.output[0]]]
                continue
            try:
                self._convert(node, index)
            except FileError:
                raise
            except NotConvertibleError as error:
                raise NotConvertibleError(f"at its {_described(node)}: {error}") from error
            except Exception as error:  # torch raises whatever an operator's check raises
                reason = f"{type(error).__name__}: {first_line(error)}"[:200]
                raise NotConvertibleError(f"at its {_described(node)}: {reason}") from error
        outputs = {value.name: self._output(value.name) for value in self.file.graph.output}
        output = next(iter(outputs.values())) if len(outputs) == 1 else outputs
        return self.tree.finish(output, self.file.path.stem)

    def _convert(self, node: onnx.NodeProto, index: int) -> None:
        if node.op_type == "Constant":
            self.values[node.output[0]] = Constant(_constant(node, self.file))
            return
        call = Call(
            node,
            tuple(self._value(name) if name else None for name in node.input),
            self.tree,
            self.file.opset,
            self._path(node, index),
            self.sole,
            self._constant,
            self.joined,
        )
        result: Any = None
        kinds = {type(value) for value in call.inputs}
        if Sizes in kinds and Traced not in kinds and node.op_type in SIZE_RULES:
            result = SIZE_RULES[node.op_type](call)
        if result is None:
            result = OPERATORS[node.op_type](call)
        results = result if isinstance(result, list | tuple) else [result]
        for name, value in zip(node.output, results, strict=False):
            self.values[name] = self._plain(value)

    def _plain(self, value: Any) -> Constant | Traced | Sizes:
        """Integers that no example changes as a constant."""
        if isinstance(value, Sizes) and all(isinstance(item.value, int) for item in value.items):
            return self.tree.tensor(value.items, is_scalar=value.is_scalar)
        assert isinstance(value, Constant | Traced | Sizes)
        return value

    def _value(self, name: str) -> Constant | Traced | Sizes:
        if name not in self.values:
            if name not in self.file.weights:
                raise NotConvertibleError(f"it reads {shown(name)}, which nothing makes")
            weight = tensor_of(self.file.weights[name], self.file.path)
            self.values[name] = Constant(weight, _weight_path(name))
        return self.values[name]

    def _constant(self, name: str) -> Constant | None:
        if name not in self.values and name not in self.file.weights:
            return None
        value = self._value(name)
        return value if isinstance(value, Constant) else None

    def _output(self, name: str) -> Constant | Traced:
        value = self._value(name)
        if isinstance(value, Sizes):
            return self.tree.tensor(value.items, is_scalar=value.is_scalar)
        return value

    def _path(self, node: onnx.NodeProto, index: int) -> str:
        """Where a layer goes: beside its weight in the exported model, or by the node's name."""
        for name in node.input[1:]:
            if name.endswith(".weight") and name in self.file.weights:
                return _weight_path(name).removesuffix(".weight")
        scopes = _scopes(node)
        if len(scopes) > 1 and scopes[-2] not in ("", MODEL):
            return scopes[-2].removeprefix(f"{MODEL}.")
        parts = [part for part in node.name.split("/") if part][:-1]
        if parts:
            return ".".join(part.rpartition(".")[2] if "." in part else part for part in parts)
        return f"{identifier(node.op_type.lower())}_{index}"


def _constant(node: onnx.NodeProto, file: OnnxFile) -> Tensor:
    for attribute in node.attribute:
        if attribute.name not in CONSTANTS:
            continue
        value = onnx.helper.get_attribute_value(attribute)
        if attribute.name == "value":
            return tensor_of(value, file.path)
        is_integer = attribute.name.startswith("value_int")
        return torch.tensor(value, dtype=torch.int64 if is_integer else torch.float32)
    raise NotConvertibleError("its value is text or sparse")


def _weight_path(name: str) -> str:
    return name.removeprefix(f"{MODEL}.")


def _scopes(node: onnx.NodeProto) -> list[str]:
    text = next((entry.value for entry in node.metadata_props if entry.key == SCOPES), "[]")
    try:
        scopes = ast.literal_eval(text) if len(text) < 2000 else []
    except (ValueError, SyntaxError, RecursionError, MemoryError):
        return []
    return [str(part) for part in scopes] if isinstance(scopes, list) else []


def _described(node: onnx.NodeProto) -> str:
    return f"{node.op_type} {shown(node.name)}" if node.name else node.op_type
