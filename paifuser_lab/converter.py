"""A model as a file for another runtime."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .errors import StepError, first_line
from .workload import Inputs


def export_onnx(module: nn.Module, inputs: Inputs, path: Path, *, open_batch: bool = False) -> list[str]:
    """Write a model as ONNX and give the names of its inputs, in the order of the tensors in `inputs`."""
    shapes = _batch_shapes(inputs) if open_batch else None
    with _quietly(), torch.no_grad():
        try:
            program = torch.onnx.export(
                module, inputs.args, kwargs=inputs.kwargs, dynamo=True, dynamic_shapes=shapes, verbose=False
            )
            assert program is not None
            program.save(str(path))
        except Exception as error:  # the exporter raises whatever the model's code raises; it is told in one sentence
            raise StepError(f"ONNX export failed: {_cause(error)}") from error
    return [value.name for value in program.model.graph.inputs if value.name is not None]


def _batch_shapes(inputs: Inputs) -> Any:
    """Dimension 0 of every tensor may change; what the model's code fixes stays fixed."""
    from torch.utils import _pytree as pytree

    def first_free(leaf: Any) -> Any:
        return {0: torch.export.Dim.DYNAMIC} if isinstance(leaf, torch.Tensor) and leaf.ndim else None

    args, kwargs = pytree.tree_map(first_free, (inputs.args, inputs.kwargs))
    return {**kwargs} if not inputs.args else (tuple(args) if not kwargs else (*args, kwargs))


def _cause(error: BaseException) -> str:
    while error.__cause__ is not None:
        error = error.__cause__
    return f"{type(error).__name__}: {first_line(error)}"


@contextmanager
def _quietly() -> Iterator[None]:
    """Without the exporters' chatter, which speaks of their own insides."""
    loggers = [logging.getLogger(name) for name in ("torch.onnx", "onnxscript", "onnx_ir")]
    before = [logger.level for logger in loggers]
    for logger in loggers:
        logger.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            yield
    finally:
        for logger, level in zip(loggers, before, strict=True):
            logger.setLevel(level)
