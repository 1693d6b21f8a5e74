"""Example inputs for an ONNX file, made from the shapes that it declares, with a seed."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

import onnx
import torch
from torch import Tensor

from ...arguments import check_count
from ...errors import FileError, WorkloadError
from ..limits import checked_shape, plausible, shown
from .proto import DTYPES, OnnxFile

IMAGE = 64  # the sides of an image of any size; UNet and YOLO halve it five times
LENGTH = 16  # every other size that the file leaves open
SECOND_BATCH = 3
# operators that hand on the indices that they read
PASSES_ON = ("Cast", "Identity", "Reshape", "Flatten", "Squeeze", "Unsqueeze")
Pair = tuple[int, int]


def open_sizes(file: OnnxFile, batch: int, sizes: Mapping[str, int]) -> dict[str, Pair]:
    """The sizes that the file leaves open, by name, with their values in two examples."""
    for name, size in sizes.items():
        check_count(f"sizes[{name!r}]", size, error=WorkloadError)
    found: dict[str, Pair] = {}
    for value in file.inputs:
        dims = value.type.tensor_type.shape.dim
        for axis, dim in enumerate(dims):
            if dim.HasField("dim_value"):
                continue
            name = symbol_of(value, axis)
            if axis == 0:
                first, second = batch, batch + SECOND_BATCH
            elif len(dims) == 4 and axis > 1:
                first, second = IMAGE, IMAGE + IMAGE // 2
            else:
                first, second = LENGTH, LENGTH + LENGTH // 2
            first = sizes.get(name, first)
            found.setdefault(name, (first, second if second != first else first * 2))
    if unknown := sizes.keys() - found.keys():
        known = ", ".join(map(shown, found)) or "none"
        raise WorkloadError(
            f"{file.path.name} has no open size {shown(min(unknown))}; it has {known}."
        )
    return found


def examples(
    file: OnnxFile, sizes: Mapping[str, Pair], seed: int, batch: int
) -> list[dict[str, Tensor]]:
    """Inputs for each example: one if no size is open, else one of each of two sizes."""
    generator = torch.Generator().manual_seed(seed)
    counts = 2 if sizes else 1
    return [
        {
            value.name: _tensor(file, value, _shape(file, value, sizes, index, batch), generator)
            for value in file.inputs
        }
        for index in range(counts)
    ]


def symbol_of(value: onnx.ValueInfoProto, axis: int) -> str:
    """The name of an open size."""
    return value.type.tensor_type.shape.dim[axis].dim_param or f"{value.name}.{axis}"


def _shape(
    file: OnnxFile,
    value: onnx.ValueInfoProto,
    sizes: Mapping[str, Pair],
    index: int,
    batch: int,
) -> tuple[int, ...]:
    shape = []
    for axis, dim in enumerate(value.type.tensor_type.shape.dim):
        if dim.HasField("dim_value"):
            shape.append(dim.dim_value)
            if axis == 0 and batch not in (1, dim.dim_value):
                raise WorkloadError(
                    f"{file.path.name} is fixed to a batch of {dim.dim_value}; leave batch out, or "
                    "export it with an open batch."
                )
        else:
            shape.append(sizes[symbol_of(value, axis)][index])
    return checked_shape(shape, f"{file.path.name}: the input {shown(value.name)}")


def _tensor(
    file: OnnxFile, value: onnx.ValueInfoProto, shape: tuple[int, ...], generator: torch.Generator
) -> Tensor:
    """Values that an input can have: noise, or indices that its tables have; 1 in a mask."""
    kind = value.type.tensor_type.elem_type
    if not value.type.HasField("tensor_type") or kind not in DTYPES:
        raise FileError(
            f"{file.path.name}: the input {shown(value.name)} is no tensor of numbers; give a "
            "model that reads tensors."
        )
    dtype = DTYPES[kind]
    rows = min(_rows_read(file, value.name), default=2)
    return plausible(value.name, shape, dtype, rows, generator)


def _rows_read(file: OnnxFile, name: str) -> Iterator[int]:
    """The numbers of rows of the weights that an input indexes."""
    readers: dict[str, list[onnx.NodeProto]] = {}
    for node in file.graph.node:
        for at in node.input:
            readers.setdefault(at, []).append(node)
    waiting, seen = [name], {name}
    while waiting:
        current = waiting.pop()
        for node in readers.get(current, ()):
            if node.op_type == "Gather" and len(node.input) == 2 and node.input[1] == current:
                table = file.weights.get(node.input[0])
                axis = next((entry.i for entry in node.attribute if entry.name == "axis"), 0)
                if table is not None and -len(table.dims) <= axis < len(table.dims):
                    yield table.dims[axis]
            elif node.op_type in PASSES_ON and node.input[0] == current:
                new = [output for output in node.output if output not in seen]
                seen.update(new)
                waiting += new
