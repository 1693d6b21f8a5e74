"""Export a model to ONNX."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import torch
from torch import nn
from torch.utils import _pytree as pytree

from ..errors import StepError, first_line
from ..model.silence import compilers_silenced
from ..quantization import stored_for_onnx
from ..workload import Inputs
from .origins import exported_graph, write_parts


def export_onnx(
    module: nn.Module, inputs: Inputs, path: Path, *, open_batch: bool = False
) -> list[str]:
    """Write a model as ONNX and return its input names, in the order of the tensors in `inputs`."""
    shapes = _batch_shapes(inputs) if open_batch else None
    optimize = not any(
        weight.dtype in (torch.bfloat16, torch.float16) for weight in module.parameters()
    )
    with compilers_silenced(), torch.no_grad(), stored_for_onnx(module):
        # torch's ONNX optimizer folds a 16-bit batch-norm into weights of fp32; the runtimes have
        # optimizers of their own
        try:
            program = torch.onnx.export(
                _TensorsOnly(module, inputs),
                tuple(inputs.tensors),
                dynamo=True,
                dynamic_shapes=shapes,
                verbose=False,
                optimize=optimize and open_batch,
            )
            assert program is not None
            if not open_batch:
                _optimize_with_parts(program, optimize=optimize)
            program.save(str(path))
        # the exporter raises whatever the model's code raises; the message is one line
        except Exception as error:
            raise StepError(f"ONNX export failed: {_cause(error)}") from error
    return [value.name for value in program.model.graph.inputs if value.name is not None]


def _optimize_with_parts(program: torch.onnx.ONNXProgram, *, optimize: bool) -> None:
    """Optimise as the exporter would, and write into each node which layers it was made of."""
    graph = exported_graph(program.model)
    if optimize:
        program.optimize()
    write_parts(program.model, graph)


class _TensorsOnly(nn.Module):
    """The model as a function from a list of tensors to a list of tensors: the exporter fails on
    named, nested and constant inputs.
    """

    def __init__(self, model: nn.Module, inputs: Inputs) -> None:
        super().__init__()
        self.model = model
        self.leaves, self.spec = pytree.tree_flatten((inputs.args, inputs.kwargs))

    def forward(self, *tensors: torch.Tensor) -> list[torch.Tensor]:
        remaining = iter(tensors)
        leaves = [
            next(remaining) if isinstance(leaf, torch.Tensor) else leaf for leaf in self.leaves
        ]
        args, kwargs = pytree.tree_unflatten(leaves, self.spec)
        return [
            leaf
            for leaf in pytree.tree_leaves(self.model(*args, **kwargs))
            if isinstance(leaf, torch.Tensor)
        ]


def _batch_shapes(inputs: Inputs) -> Any:
    """Mark dimension 0 of every tensor as dynamic."""
    return {
        "tensors": tuple(
            {0: torch.export.Dim.DYNAMIC} if tensor.ndim else None for tensor in inputs.tensors
        )
    }


def _cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {first_line(error)}"
