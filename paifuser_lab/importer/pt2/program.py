"""What the JSON of a torch.export program says, checked before it is used."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import FileError
from ..limits import MAX_DEPTH, MAX_NODES, MAX_RANK, shown
from .archive import DTYPES, Archive, sound

MAJOR = 8  # of the version of torch's schema
# a symbol, or a multiple of one, as sympy writes it
SYMBOL = re.compile(
    r"(?:Mul\(Integer\((\d{1,9})\), )?Symbol\('(\w{1,40})'[\w =,]{0,80}\)(?(1)\))", re.ASCII
)
PREFIX = "model."  # of every weight, where the program was captured of a module around the model
OWN = "build the model yourself, and use Workload(model, inputs)"


@dataclass(frozen=True)
class OpenDim:
    """A size of an input that the program leaves open: a multiple of a symbol."""

    symbol: str
    factor: int
    hint: int  # the size of the captured example


@dataclass(frozen=True)
class Input:
    """A tensor that a caller gives."""

    name: str
    dtype: torch.dtype
    dims: tuple[int | OpenDim, ...]


@dataclass(frozen=True)
class Weight:
    """A parameter, a buffer or a constant."""

    name: str
    tensor: Tensor
    is_parameter: bool


@dataclass(frozen=True)
class Program:
    """A program: the values by the names that its operators use."""

    path: Path
    inputs: tuple[Input, ...]
    weights: dict[str, Weight]
    nodes: list[dict[str, Any]]
    values: dict[str, dict[str, Any]]  # what the file says of each tensor
    outputs: list[Any]
    structure: Any  # of the output, with an index in `outputs` for each leaf
    ranges: dict[str, tuple[int, int]]  # of each symbol
    is_wrapped: bool  # captured of a module around the model


def read_program(path: str | Path) -> Program:
    """Read a program; what is damaged, or would run code, is refused in one sentence."""
    with Archive(path) as archive, sound(archive.path):
        file = archive.path.name
        if any(name.startswith("data/aotinductor/") for name in archive.entries):
            raise FileError(
                f"{file} is a package of compiled code, which is not run here; load the program "
                "that it was compiled from."
            )
        found = re.compile(r"models/([^/]+)\.json")
        models = [match[1] for name in archive.entries if (match := found.fullmatch(name))]
        if len(models) != 1 or "archive_format" not in archive.entries:
            raise FileError(
                f"{file} holds {len(models)} programs of torch.export where one is read; save one "
                "with torch.export.save of torch 2.9 or newer."
            )
        content = archive.json(f"models/{models[0]}.json")
        version = content["schema_version"]["major"]
        if version != MAJOR:
            raise FileError(
                f"{file} is of version {shown(version)} of torch's format, and {MAJOR} is read; "
                "save it again with torch 2.9 or newer."
            )
        tensors = archive.tensors("constants", models[0]) | archive.tensors("weights", models[0])
        return _program(archive.path, content, tensors)


def _program(
    path: Path, content: dict[str, Any], tensors: dict[str, tuple[Tensor, bool]]
) -> Program:
    module = content["graph_module"]
    graph, signature = module["graph"], module["signature"]
    if len(graph["nodes"]) > MAX_NODES:
        raise FileError(f"{path.name} has more than {MAX_NODES:,} operators; is it the right file?")
    inputs, weights = [], {}
    is_wrapped = bool(tensors) and all(name.startswith(PREFIX) for name in tensors)
    for spec in signature["input_specs"]:
        kind, entry = next(iter(spec.items()))
        if kind == "user_input":
            if "as_tensor" in entry["arg"]:
                name = entry["arg"]["as_tensor"]["name"]
                inputs.append(_input(path, name, graph["tensor_values"][name]))
        elif kind in ("parameter", "buffer", "tensor_constant"):
            name = entry[f"{kind}_name"]
            if name not in tensors:
                raise FileError(f"{path.name} has no weight {shown(name)}; save it again.")
            tensor, is_parameter = tensors[name]
            own = name.removeprefix(PREFIX) if is_wrapped else name
            weights[entry["arg"]["name"]] = Weight(own, tensor, is_parameter)
        elif kind != "constant_input":
            raise FileError(
                f"{path.name} reads {shown(kind)}, an object that is not a tensor, which would "
                f"run code; {OWN}."
            )
    outputs = []
    for spec in signature["output_specs"]:
        kind, entry = next(iter(spec.items()))
        if kind != "user_output":
            raise FileError(
                f"{path.name} changes its inputs or buffers ({shown(kind)}), which a call of a "
                f"workload must not; return the value instead, and export it again."
            )
        outputs.append(entry["arg"])
    call = module["module_call_graph"][0]["signature"]
    leaves = iter(range(len(outputs)))
    structure = _structure(path, json.loads(call["out_spec"])[1], leaves, 0)
    if next(leaves, None) is not None:
        raise ValueError("its outputs do not fit their structure")
    ranges = {
        str(name): (int(entry["min_val"] or 0), int(entry["max_val"] or 1 << 40))
        for name, entry in content["range_constraints"].items()
    }
    return Program(
        path, tuple(inputs), weights, graph["nodes"], graph["tensor_values"], outputs, structure,
        ranges, is_wrapped,
    )  # fmt: skip


def _input(path: Path, name: str, meta: dict[str, Any]) -> Input:
    if meta["dtype"] not in DTYPES or len(meta["sizes"]) > MAX_RANK:
        raise FileError(f"{path.name}: the input {shown(name)} is of no type that is read here.")
    return Input(
        str(name), DTYPES[meta["dtype"]], tuple(_dim(path, size) for size in meta["sizes"])
    )


def _dim(path: Path, size: dict[str, Any]) -> int | OpenDim:
    """A size of an input: a number, a multiple of a symbol, or else what the example had."""
    if "as_int" in size:
        return int(size["as_int"])
    entry = size["as_expr"]
    hint = int((entry.get("hint") or {}).get("as_int", 0))
    match = SYMBOL.fullmatch(entry["expr_str"])
    factor = int(match[1] or 1) if match else 0
    if match and factor and hint and hint % factor == 0:
        return OpenDim(match[2], factor, hint)
    if not hint:
        raise FileError(
            f"{path.name} has an input of the open size {shown(entry['expr_str'])} without an "
            "example; export it with example inputs."
        )
    return hint


def _structure(path: Path, spec: dict[str, Any], leaves: Iterator[int], depth: int) -> Any:
    """The structure of the output, with an index for each leaf."""
    if depth > MAX_DEPTH:
        raise ValueError("its output is too deep")
    kind, children = spec["type"], spec["children_spec"]
    if kind is None:
        return next(leaves)
    context = json.loads(spec["context"]) if isinstance(spec["context"], str) else None
    inner = [_structure(path, child, leaves, depth + 1) for child in children]
    if kind == "builtins.list":
        return inner
    if kind in ("builtins.tuple", "collections.namedtuple"):
        return tuple(inner)
    if isinstance(context, list) and all(isinstance(key, str | int) for key in context):
        return dict(zip(context, inner, strict=True))
    raise FileError(
        f"{path.name} returns a {shown(kind)}, which is not known here; return a tensor, a list or "
        "a dict, and export it again."
    )
