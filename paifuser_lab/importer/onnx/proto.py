"""Reads the protobuf message of an ONNX file, and refuses what would harm before it is used.

Checked without allocating what the file asks for: sizes of tensors against the bytes that are
there, the number of nodes with every call of a function counted, and the depth of graphs in nodes.
Weights in a file of their own are read only from the model's folder, and from no link.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from math import prod
from pathlib import Path, PurePosixPath
from typing import Any

import onnx
import torch
from google.protobuf.message import DecodeError  # type: ignore[import-untyped]
from torch import Tensor

from ..._files import checked_path, file_exists, size_of
from ...errors import FileError, first_line
from ..limits import MAX_DEPTH, MAX_FILE, MAX_NODES, checked_shape, shown


@dataclass(frozen=True)
class ExternalData:
    """A part of a file beside the model."""

    path: Path
    offset: int
    length: int

    def read(self) -> bytearray:
        """The bytes; a link that has come in place of the file is not followed."""
        content = bytearray(self.length)
        flags = os.O_RDONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)
        try:
            with os.fdopen(os.open(self.path, flags), "rb") as file:
                file.seek(self.offset)
                count = file.readinto(content)
        except OSError as error:
            raise FileError(f"Cannot read {self.path}: {error.strerror}.") from error
        if count != self.length:
            raise FileError(f"{self.path.name} was cut short; copy it again.")
        return content


def external_data(tensor: onnx.TensorProto, model: Path) -> ExternalData:
    """Where the values of a tensor are, if that is a plain file in the model's folder."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    what = f"{model.name}: the data of {shown(tensor.name)}"
    path = _inside(location, model.parent, what)
    try:
        status = path.lstat()
    except (OSError, ValueError) as error:
        raise FileError(
            f"{what} should be in {shown(location)} beside it, which cannot be found; copy both."
        ) from error
    between = path.relative_to(model.parent).parents
    is_linked = any((model.parent / part).is_symlink() for part in between if part.name)
    if is_linked or not stat.S_ISREG(status.st_mode) or status.st_nlink > 1:
        raise FileError(
            f"{what} is in {shown(location)}, which is a link or no plain file and may lead out of "
            "the folder; put a copy in its place."
        )
    offset = _number(entries.get("offset", "0"), what)
    length = _number(entries.get("length", str(max(0, status.st_size - offset))), what)
    if offset + length > status.st_size:
        raise FileError(
            f"{what} ends at byte {offset + length:,} of {shown(location)}, which has "
            f"{status.st_size:,}; copy it again."
        )
    return ExternalData(path, offset, length)


def _inside(location: str, folder: Path, what: str) -> Path:
    """The path of a location that neither leads out of the folder nor through a link."""
    parts = PurePosixPath(location.replace("\\", "/")).parts
    is_plain = bool(parts) and ".." not in parts and ":" not in location and "\0" not in location
    if not is_plain or location.startswith(("/", "\\")):
        raise FileError(
            f"{what} is in {shown(location)}, outside the folder of the model; only files in that "
            "folder are read."
        )
    return folder.joinpath(*parts)


def _number(text: str, what: str) -> int:
    if not (text.isascii() and text.isdigit() and len(text) < 19):
        raise FileError(f"{what} begins or ends at byte {shown(text)}, which is no number.")
    return int(text)


MIN_OPSET = 7
DTYPES: dict[int, torch.dtype] = {
    onnx.TensorProto.FLOAT: torch.float32,
    onnx.TensorProto.DOUBLE: torch.float64,
    onnx.TensorProto.FLOAT16: torch.float16,
    onnx.TensorProto.BFLOAT16: torch.bfloat16,
    onnx.TensorProto.INT8: torch.int8,
    onnx.TensorProto.INT16: torch.int16,
    onnx.TensorProto.INT32: torch.int32,
    onnx.TensorProto.INT64: torch.int64,
    onnx.TensorProto.UINT8: torch.uint8,
    onnx.TensorProto.UINT16: torch.uint16,
    onnx.TensorProto.UINT32: torch.uint32,
    onnx.TensorProto.UINT64: torch.uint64,
    onnx.TensorProto.BOOL: torch.bool,
}
TYPED = ("float_data", "int32_data", "int64_data", "double_data", "uint64_data", "string_data")
VALUES_PER_ITEM = 8  # the most that one item of a typed field holds: bits of a packed type


@dataclass(frozen=True)
class OnnxFile:
    """The message of a file that was found harmless, and the folder that its weights are in."""

    path: Path
    model: onnx.ModelProto

    @property
    def graph(self) -> onnx.GraphProto:
        return self.model.graph

    @cached_property
    def opset(self) -> int:
        """The version of the standard operators."""
        return max(
            (entry.version for entry in self.model.opset_import if entry.domain in ("", "ai.onnx")),
            default=0,
        )

    @cached_property
    def weights(self) -> dict[str, onnx.TensorProto]:
        """The initializers by name."""
        return {tensor.name: tensor for tensor in self.graph.initializer}

    @property
    def inputs(self) -> list[onnx.ValueInfoProto]:
        """The inputs that a caller gives."""
        return [value for value in self.graph.input if value.name not in self.weights]

    @cached_property
    def external_files(self) -> set[Path]:
        """The files beside the model that hold its weights, also those of graphs in its nodes."""
        return {
            external_data(tensor, self.path).path
            for graph in _graphs(self.model)
            for tensor in _tensors(graph)
            if tensor.data_location == onnx.TensorProto.EXTERNAL
        }


def read_onnx(path: str | Path) -> OnnxFile:
    """Read an ONNX file; a file that is damaged or asks for too much is refused in one sentence."""
    path = checked_path(path)
    if not file_exists(path):
        raise FileError(f"There is no ONNX file {str(path)!r}.")
    try:
        if (size := size_of(path)) > MAX_FILE:
            raise FileError(
                f"{path.name} is {size:,} bytes, past the limit of {MAX_FILE:,} of an ONNX file; "
                "keep its weights as external data."
            )
        content = path.read_bytes()
    except OSError as error:
        raise FileError(f"Cannot read {path}: {error.strerror}.") from error
    model = onnx.ModelProto()
    try:
        model.ParseFromString(content)
        file = OnnxFile(path, model)
        _check(file)
    except (DecodeError, ValueError, UnicodeDecodeError) as error:
        raise FileError(
            f"{path.name} is not a sound ONNX file ({first_line(error)}); was it cut short?"
        ) from error
    return file


def tensor_of(tensor: onnx.TensorProto, path: Path) -> Tensor:
    """The values of a tensor in a message, or in the file beside it."""
    dtype = DTYPES.get(tensor.data_type)
    if dtype is None:
        raise ValueError(f"{shown(tensor.name)} is of type {tensor.data_type}, which torch lacks")
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        raw: bytes | bytearray = external_data(tensor, path).read()
    elif tensor.HasField("raw_data"):
        raw = bytearray(tensor.raw_data)
    else:
        array = onnx.numpy_helper.to_array(tensor)
        raw = bytearray(array.tobytes())
    if not raw:
        return torch.empty(tuple(tensor.dims), dtype=dtype)
    return torch.frombuffer(raw, dtype=dtype).reshape(tuple(tensor.dims))


def _names(model: onnx.ModelProto) -> Iterator[Any]:
    """The names in a message."""
    graphs = list(_graphs(model))
    for part in (*model.functions, *(node for graph in graphs for node in graph.node)):
        yield from (part.name, part.domain, *part.input, *part.output)
    for graph in graphs:
        values = (*graph.input, *graph.output, *graph.initializer, *graph.value_info)
        yield from (value.name for value in values)
        for node in graph.node:
            yield from (node.op_type, *(attribute.name for attribute in node.attribute))


def _check(file: OnnxFile) -> None:
    model, name = file.model, file.path.name
    if not all(isinstance(text, str) for text in _names(model)):  # protobuf gives its bytes
        raise ValueError("a name in it is no text")
    if not model.graph.output or not (model.graph.node or model.graph.initializer):
        raise FileError(f"{name} holds no ONNX graph; is it the right file?")
    if file.opset < MIN_OPSET:
        raise FileError(
            f"{name} is written in opset {file.opset}, and {MIN_OPSET} is the oldest that is read; "
            "convert it with onnx.version_converter."
        )
    _check_count(file)
    for graph in _graphs(model):
        if graph.sparse_initializer:
            raise FileError(f"{name} has sparse weights; export it with dense ones.")
        for tensor in _tensors(graph):
            _check_tensor(file, tensor)
    for value in (*model.graph.input, *model.graph.output):
        sizes = [dim.dim_value for dim in value.type.tensor_type.shape.dim if not dim.dim_param]
        checked_shape(sizes, f"{name}: the value {shown(value.name)}")


def _check_tensor(file: OnnxFile, tensor: onnx.TensorProto) -> None:
    """Refuse a tensor whose shape does not fit the bytes that are there."""
    what = f"{file.path.name}: the weight {shown(tensor.name)}"
    shape = checked_shape(tensor.dims, what, limit=MAX_FILE * 16)
    dtype = DTYPES.get(tensor.data_type)
    expected = prod(shape) * dtype.itemsize if dtype else None
    if tensor.data_location == onnx.TensorProto.EXTERNAL:
        length = external_data(tensor, file.path).length
    elif tensor.HasField("raw_data"):
        length = len(tensor.raw_data)
    else:
        count = sum(len(getattr(tensor, field)) for field in TYPED)
        if count * VALUES_PER_ITEM < prod(shape) or (dtype and count < prod(shape)):
            raise FileError(f"{what} has {count:,} of {prod(shape):,} values; copy the file again.")
        return
    if expected is not None and length != expected:
        raise FileError(
            f"{what} has {length:,} bytes where its shape needs {expected:,}; copy the file again."
        )


def _check_count(file: OnnxFile) -> None:
    """Count the nodes as if every function were written out at its calls."""
    name = file.path.name
    functions = {(entry.domain, entry.name): entry for entry in file.model.functions}
    counted: dict[tuple[str, str], int] = {}
    open_calls: list[tuple[str, str]] = []

    def count(nodes: Any, depth: int) -> int:
        total = 0
        if depth > MAX_DEPTH:
            raise FileError(
                f"{name} has graphs or functions more than {MAX_DEPTH} deep in each other; "
                "flatten it with onnx.inliner."
            )
        for node in nodes:
            key = (node.domain, node.op_type)
            total += of_function(key, depth + 1) if key in functions else 1
            for graph in _graphs_of(node):
                total += count(graph.node, depth + 1)
            if total > MAX_NODES:
                raise FileError(
                    f"{name} has more than {MAX_NODES:,} nodes with its functions written out; is "
                    "it the right file?"
                )
        return total

    def of_function(key: tuple[str, str], depth: int) -> int:
        if key in open_calls:
            raise FileError(f"{name}: the function {shown(key[1])} calls itself; export it again.")
        if key not in counted:
            open_calls.append(key)
            counted[key] = count(functions[key].node, depth)
            open_calls.pop()
        return counted[key]

    for key in functions:
        of_function(key, 1)
    count(file.graph.node, 0)


def _graphs_of(node: onnx.NodeProto) -> Iterator[onnx.GraphProto]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _graphs(model: onnx.ModelProto) -> Iterator[onnx.GraphProto]:
    """Every graph of a model, and the nodes of every function as one."""
    functions = (onnx.GraphProto(node=function.node) for function in model.functions)
    waiting = [model.graph, *functions]
    while waiting:
        graph = waiting.pop()
        yield graph
        waiting += [inner for node in graph.node for inner in _graphs_of(node)]


def _tensors(graph: onnx.GraphProto) -> Iterator[onnx.TensorProto]:
    """The weights of a graph, and the tensors in its nodes."""
    yield from graph.initializer
    for node in graph.node:
        for attribute in node.attribute:
            if attribute.HasField("t"):
                yield attribute.t
            yield from attribute.tensors
