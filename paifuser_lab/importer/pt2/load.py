"""Loads a program of torch.export as a torch module with example inputs.

The module calls the operators of the program in their order; the shape and dtype of each value are
compared with those in the file.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from ...errors import FileError, WorkloadError
from ..examples import PASSES_ON, checked_inputs, plausible
from ..limits import Imported, NotConvertibleError, checked_shape, shown
from .archive import sound
from .convert import convert
from .program import Input, OpenDim, Program, read_program

TABLES = ("embedding", "index_select")


def load_pt2(
    path: str | Path,
    *,
    batch: int = 1,
    seed: int = 0,
    inputs: Mapping[str, Tensor] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Imported:
    """Load a program: nothing in it is unpickled or evaluated, and only operators of ATen are
    called.

    Inputs are made up from the shapes in the file unless given by name. Sizes that it leaves open
    stay open; without `sizes` they are those with which it was captured.
    """
    program = read_program(path)
    try:
        with sound(program.path):
            return _loaded(program, batch, seed, inputs, sizes)
    except NotConvertibleError as error:
        raise FileError(
            f"{program.path.name} cannot be loaded {error}; export it to ONNX, or build the model "
            "yourself, and use Workload(model, inputs)."
        ) from error


def _loaded(
    program: Program, batch: int, seed: int, inputs: Any, sizes: Mapping[str, int] | None
) -> Imported:
    names = [value.name for value in program.inputs]
    if not names:
        raise FileError(f"{program.path.name} reads no tensor; export a model that does.")
    given = None if inputs is None else checked_inputs(program.path.name, names, inputs)
    if given is None:
        chosen, others = _sizes(program, batch, sizes or {})
    else:
        chosen, others = _sizes(program, 1, _sizes_of(program, given))
    examples = [given or _example(program, chosen, seed)]
    if others:
        examples.append(_example(program, others, seed))
    notes = ["its operators are called as torch.export captured them"]
    try:
        module = convert(program, examples)
    except NotConvertibleError:
        if len(examples) == 1:
            raise
        module = convert(program, examples[:1])
        notes.append("its open sizes are not all open: it runs only at those of the example inputs")
    placeholders = [node.target for node in module.graph.nodes if node.op == "placeholder"]
    tensors = list(examples[0].values())
    call = tensors[0] if len(tensors) == 1 else dict(zip(placeholders, tensors, strict=True))
    return Imported(module, call, program.path.stem, tuple(notes), (program.path,))


def _sizes_of(program: Program, given: Mapping[str, Tensor]) -> dict[str, int]:
    """The value of each symbol in inputs that were given."""
    return {
        dim.symbol: size // dim.factor
        for value in program.inputs
        for dim, size in zip(value.dims, given[value.name].shape, strict=False)
        if isinstance(dim, OpenDim)
    }


def _sizes(
    program: Program, batch: int, sizes: Mapping[str, int]
) -> tuple[dict[str, int], dict[str, int]]:
    """The value of each symbol in the examples, and other ones; none where none is open."""
    dims = [(axis, dim) for value in program.inputs for axis, dim in enumerate(value.dims)]
    open_dims = [(axis, dim) for axis, dim in dims if isinstance(dim, OpenDim)]
    symbols = {dim.symbol: dim.hint // dim.factor for _, dim in open_dims}
    batches = {dim.symbol for axis, dim in open_dims if axis == 0 and dim.factor == 1}
    if unknown := sizes.keys() - symbols.keys():
        known = ", ".join(map(shown, symbols)) or "none"
        raise WorkloadError(
            f"{program.path.name} has no open size {shown(min(unknown))}; it has {known}."
        )
    fixed = {value.dims[0] for value in program.inputs if value.dims}
    if batch != 1 and not batches and fixed != {batch}:
        raise WorkloadError(
            f"{program.path.name} is fixed to the sizes with which it was captured; leave batch "
            "out, or export it with an open batch."
        )
    chosen = symbols | (dict.fromkeys(batches, batch) if batch != 1 else {}) | dict(sizes)
    others = {}
    for symbol, value in chosen.items():
        low, high = program.ranges.get(symbol, (0, value + 1))
        if not isinstance(value, int) or not max(low, 1) <= value <= high:
            raise WorkloadError(
                f"{program.path.name} was captured for {shown(symbol)} from {low} to {high:,}, "
                f"and {value!r} was given."
            )
        others[symbol] = value + 1 if value + 1 <= high else value - 1
    return chosen, others


def _example(program: Program, symbols: Mapping[str, int], seed: int) -> dict[str, Tensor]:
    generator = torch.Generator().manual_seed(seed)
    rows = {value.name: min(_rows_read(program, value), default=2) for value in program.inputs}
    return {
        value.name: plausible(
            value.name,
            checked_shape(
                (
                    dim.factor * symbols[dim.symbol] if isinstance(dim, OpenDim) else dim
                    for dim in value.dims
                ),
                f"{program.path.name}: the input {shown(value.name)}",
            ),
            value.dtype,
            rows[value.name],
            generator,
        )
        for value in program.inputs
    }


def _rows_read(program: Program, value: Input) -> Iterator[int]:
    """The numbers of rows of the weights that an input indexes."""
    names = {value.name}
    for node in program.nodes:
        kind = str(node["target"]).rpartition(".")[0].rpartition(".")[2]
        reads = [entry["arg"].get("as_tensor", {}).get("name") for entry in node["inputs"]]
        if kind in TABLES and len(reads) > 1 and names & set(reads[1:]):
            weight = program.weights.get(reads[0])
            if weight is not None and weight.tensor.ndim:
                yield weight.tensor.shape[0]
        elif kind in PASSES_ON and reads and reads[0] in names:
            names |= {
                output["as_tensor"]["name"] for output in node["outputs"] if "as_tensor" in output
            }
