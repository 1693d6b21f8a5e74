"""Loads an ONNX file as a torch module with ONNX Runtime's output, or as one that runs it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import torch
from onnx import inliner
from torch import Tensor, fx
from torch.utils import _pytree as pytree

from ...errors import FileError, first_line
from ..limits import Imported, NotConvertibleError, checked_inputs, shown
from .convert import convert
from .examples import examples, open_sizes, symbol_of
from .proto import OnnxFile, read_onnx
from .runtime import OnnxModel, runtime_outputs

PREPROCESSING = "paifuser_lab.preprocessing"  # the property of a file that an export writes
# relative L2 errors past which a converted module is not used: sums in another order are allowed
TOLERANCES = {torch.float64: 1e-4, torch.float32: 1e-4, torch.float16: 1e-2, torch.bfloat16: 5e-2}


def load_onnx(
    path: str | Path,
    *,
    batch: int = 1,
    seed: int = 0,
    inputs: Mapping[str, Tensor] | None = None,
    sizes: Mapping[str, int] | None = None,
) -> Imported:
    """Load an ONNX file: converted to torch where its operators allow, else run as it is.

    The module's output equals that of ONNX Runtime for the example inputs and, where the file
    leaves sizes open, for inputs of other sizes too. `inputs` are used in place of made-up ones.
    """
    file = _inlined(read_onnx(path))
    if inputs is None:
        tried = examples(file, open_sizes(file, batch, sizes or {}), seed, batch)
    else:
        names = [value.name for value in file.inputs]
        given = checked_inputs(file.path.name, names, inputs)
        open_ = open_sizes(file, 1, _sizes_of(file, given))
        tried = [given, *examples(file, open_, seed, 1)[1:]]
    expected, notes = _run(file, tried)
    tried = tried[: len(expected)]
    if any(tensor.numel() == 0 for tensor in expected[0]):
        notes.append("an output is empty for the example inputs; give inputs of your own")
    try:
        module: Any = convert(file, tried)
        error = _error(file, module, tried, expected)
        notes.append(
            f"converted to torch; its output differs from ONNX Runtime's by {error:.0e} "
            "(relative L2)"
        )
        own = _names(module)
        if len(own) > 1 and own != [value.name for value in file.inputs]:
            notes.append(f"its inputs are called {', '.join(own)} here, in test data too")
    except NotConvertibleError as obstacle:
        module = _opaque(file)
        notes.append(
            f"runs in ONNX Runtime as it is, since {obstacle}; it is measured as a "
            "whole, and its layers are neither seen nor changed"
        )
    files = (file.path, *sorted(file.external_files))
    return Imported(
        module,
        _call_inputs(module, tried[0]),
        file.path.stem,
        tuple(notes),
        files,
        _preprocessing(file),
    )


def _preprocessing(file: OnnxFile) -> dict[str, Any] | None:
    """What an export of this package wrote about pictures; their size is that of the example."""
    texts = [prop.value for prop in file.model.metadata_props if prop.key == PREPROCESSING]
    if not texts:
        return None
    try:
        stated = dict(json.loads(texts[-1]))
    except (ValueError, TypeError, RecursionError) as error:
        raise FileError(
            f"{file.path.name}: its property {PREPROCESSING} cannot be read "
            f"({first_line(error)}); export it again."
        ) from error
    return {name: value for name, value in stated.items() if name != "size"}


def _inlined(file: OnnxFile) -> OnnxFile:
    """The file with its functions written out at their calls, which was counted before."""
    if not file.model.functions:
        return file
    try:
        return OnnxFile(file.path, inliner.inline_local_functions(file.model))
    except Exception as error:  # onnx raises its own errors
        raise FileError(
            f"{file.path.name}: its functions cannot be written out ({first_line(error)}); export "
            "it without functions."
        ) from error


def _sizes_of(file: OnnxFile, given: Mapping[str, Tensor]) -> dict[str, int]:
    """The values of the open sizes in inputs that were given."""
    return {
        symbol_of(value, axis): int(size)
        for value in file.inputs
        for axis, (dim, size) in enumerate(
            zip(value.type.tensor_type.shape.dim, given[value.name].shape, strict=False)
        )
        if not dim.HasField("dim_value")
    }


def _run(file: OnnxFile, tried: list[dict[str, Tensor]]) -> tuple[list[list[Tensor]], list[str]]:
    """ONNX Runtime's outputs; without the second example where only the first can be run."""
    try:
        return runtime_outputs(file, tried), []
    except FileError:
        if len(tried) == 1:
            raise
    note = "its open sizes are not all open: it runs only at those of the example inputs"
    return runtime_outputs(file, tried[:1]), [note]


def _error(
    file: OnnxFile,
    module: fx.GraphModule,
    tried: list[dict[str, Tensor]],
    expected: list[list[Tensor]],
) -> float:
    """The largest relative error of an output; raises past the tolerance of its dtype."""
    worst = 0.0
    for example, answers in zip(tried, expected, strict=True):
        call = _call_inputs(module, example)
        try:
            with torch.no_grad():
                output = module(**call) if isinstance(call, dict) else module(call)
        except Exception as error:  # torch raises whatever an operator raises
            raise NotConvertibleError(f"its torch graph fails ({first_line(error)})") from error
        for value, own, right in zip(
            file.graph.output, pytree.tree_leaves(output), answers, strict=True
        ):
            error_ = _difference(own, right)
            if not error_ <= TOLERANCES.get(right.dtype, 0.0):
                raise NotConvertibleError(
                    f"the output {shown(value.name)} of its torch graph differs by {error_:.0e}"
                )
            worst = max(worst, error_)
    return worst


def _difference(own: Tensor, right: Tensor) -> float:
    if own.shape != right.shape or own.dtype != right.dtype:
        return float("inf")
    if not right.is_floating_point():
        return float((own != right).sum()) / max(1, right.numel())
    own, right = own.double(), right.double()
    same = torch.isfinite(right) == torch.isfinite(own)
    if not bool(same.all()):
        return float("inf")
    kept = torch.isfinite(right)
    scale = max(float(right[kept].norm()), 1e-12)
    return float((own[kept] - right[kept]).norm()) / scale


def _call_inputs(module: Any, example: dict[str, Tensor]) -> Any:
    """One tensor as it is, several by the names that the module gives them."""
    if len(example) == 1:
        return next(iter(example.values()))
    if isinstance(module, OnnxModel):
        return example
    return dict(zip(_names(module), example.values(), strict=True))


def _names(module: fx.GraphModule) -> list[str]:
    """What the module calls its inputs."""
    return [str(node.target) for node in module.graph.nodes if node.op == "placeholder"]


def _opaque(file: OnnxFile) -> OnnxModel:
    names = [value.name for value in file.inputs]
    outputs = [value.name for value in file.graph.output]
    model = OnnxModel(file.path.read_bytes(), names, outputs)
    model.folder = str(file.path.absolute()) if file.external_files else ""
    return model.eval()
