"""Torch's ONNX exporter: a model as an ONNX program, and as the file that the engines read."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from ..errors import StepError
from ..model.formats import HALVES
from ..model.silence import compilers_silenced
from ..quantization import stored_for_onnx
from ..workload import Inputs
from .origins import exported_graph, write_parts
from .program import FlatModel, reason


def export_onnx(
    module: nn.Module, inputs: Inputs, path: Path, *, open_batch: bool = False
) -> list[str]:
    """Write a model as ONNX and return its input names, in the order of the tensors in `inputs`."""
    shapes = _batch_shapes(inputs) if open_batch else None
    try:
        program = onnx_program(module, inputs, shapes, with_parts=not open_batch)
        program.save(str(path))
    # the exporter raises whatever the model's code raises; the message is one line
    except Exception as error:
        raise StepError(f"ONNX export failed: {reason(error)}") from error
    return [value.name for value in program.model.graph.inputs if value.name is not None]


def onnx_program(
    module: nn.Module,
    inputs: Inputs,
    shapes: Any = None,
    *,
    with_parts: bool = True,
    names: tuple[Sequence[str], Sequence[str]] | None = None,
    opset: int | None = None,
) -> torch.onnx.ONNXProgram:
    """The ONNX program of a model; with parts, each node knows the layers that it was made of.

    `shapes` are the dynamic dimensions of its input tensors, if there are some, and `names` are
    what its inputs and outputs are called. The exporter delivers another opset than asked for
    without an error: read it back.
    """
    from onnx_ir.passes.common import OutputFixPass

    # torch's ONNX optimizer folds a 16-bit batch-norm into weights of fp32; the runtimes have
    # optimizers of their own
    optimize = not any(weight.dtype in HALVES for weight in module.parameters())
    with compilers_silenced(), torch.no_grad(), stored_for_onnx(module):
        program = torch.onnx.export(
            FlatModel(module, inputs),
            tuple(inputs.tensors),
            dynamo=True,
            dynamic_shapes=shapes,
            verbose=False,
            optimize=optimize and not with_parts,
            opset_version=opset,
        )
        assert program is not None
        # an input, or a tensor twice, as an output: each output becomes a tensor, with its own name
        OutputFixPass()(program.model)
        if names is not None:
            _rename(program.model.graph, *names)
        if with_parts:
            graph = exported_graph(program.model)
            if optimize:
                program.optimize()
            write_parts(program.model, graph)
    return program


def _rename(graph: Any, inputs: Sequence[str], outputs: Sequence[str]) -> None:
    """Give the graph's inputs and outputs their names; another value of that name gets a longer
    one.
    """
    wanted = [
        *zip(graph.inputs, inputs, strict=False),
        *zip(graph.outputs, outputs, strict=False),
    ]
    chosen = {name for _, name in wanted}
    ours = {id(value) for value, _ in wanted}
    made = [value for node in graph for value in node.outputs]
    for value in (*graph.initializers.values(), *made):
        if value.name in chosen and id(value) not in ours:
            value.name = f"{value.name}_inside"
    for value, name in wanted:
        value.name = name


def _batch_shapes(inputs: Inputs) -> Any:
    """Mark dimension 0 of every tensor as dynamic."""
    return {
        "tensors": tuple(
            {0: torch.export.Dim.DYNAMIC} if tensor.ndim else None for tensor in inputs.tensors
        )
    }
