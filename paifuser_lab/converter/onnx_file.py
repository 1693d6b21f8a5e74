"""ONNX files: torch's exporter, the opset read back, names and metadata kept, run in ONNX
Runtime.
"""

from __future__ import annotations

import hashlib
import json
import re
from importlib.metadata import version
from pathlib import Path
from typing import Any, ClassVar

import onnx
import torch
from pydantic import Field
from torch import Tensor

from ..errors import ExportError, NotVerifiableError, first_line
from ..importer.onnx.runtime import session_of
from ..quantization import stored_for_onnx
from ..quantization.float_formats import autocast_as_casts
from ..records import LayerDifference
from ..workload import Inputs, running
from .exportable import Exportable
from .layer_parity import first_difference
from .narrow import to_bf16, to_fp16, widen_bf16, widen_norms
from .onnx import onnx_program
from .opset import lower_opset, opset_of
from .program import (
    batch_dimensions,
    causes,
    describe_layer,
    doubled,
    is_data_dependent,
    refused,
)
from .target import Conversion, Run, Target, TargetOptions

OLDEST_OF_TORCH, NEWEST_OF_TORCH = 18, 23  # what torch's exporter has operators of
INLINE_BYTES = (2 << 30) - (16 << 20)  # of weights; a protobuf file holds less than 2 GiB
BATCH = "batch"
NO_CONVERSION = re.compile(r"No ONNX function found for <OpOverload\(op='([\w.:]+)'")


class OnnxOptions(TargetOptions):
    """The options of an ONNX file."""

    opset: int | None = Field(default=None, ge=1, le=99)  # None: as torch delivers it
    inline_bytes: int = Field(default=INLINE_BYTES, ge=0)  # more weights go to a file of their own


class OnnxFile(Target):
    """An ONNX file; more than 2 GB of weights lie in a file beside it."""

    name: ClassVar[str] = "onnx"
    title: ClassVar[str] = "ONNX"
    suffix: ClassVar[str] = ".onnx"
    precisions: ClassVar[tuple[str, ...]] = ("fp32", "fp16", "bf16", "int8")
    Options: ClassVar[type[TargetOptions]] = OnnxOptions

    def convert(self, exportable: Exportable, path: Path, options: OnnxOptions) -> Conversion:
        """Write the file in the wanted opset, or raise with the lowest that works."""
        model = onnx_model(exportable, options)
        notes = widen_bf16(model)
        if options.opset is not None and opset_of(model) > options.opset:
            lower_opset(exportable.name, model, options.opset)
        if options.precision == "fp16" != exportable.precision:
            model, notes = to_fp16(model)
        if options.precision == "bf16" != exportable.precision:
            notes = to_bf16(model)
        delivered = opset_of(model)
        if options.opset not in (None, delivered):
            raise ExportError(
                f"{exportable.name} was asked for in opset {options.opset}, and torch's exporter "
                f"delivers {delivered}; leave `opset` out, or choose one up to {delivered}."
            )
        _describe(model, exportable, options)
        notes += _save(model, path, options.inline_bytes)
        return Conversion(tuple(notes), opset=delivered)

    def first_difference(
        self, exportable: Exportable, path: Path, tensors: list[Tensor], tolerance: float
    ) -> LayerDifference:
        return first_difference(exportable, path, tensors, tolerance)

    def opened(self, path: Path, threads: int) -> Run:
        session = _session(path, threads)
        names = [value.name for value in session.get_inputs()]

        def run(tensors: list[Tensor]) -> list[Tensor]:
            feeds = zip(names, tensors, strict=True)
            arrays = session.run(None, {name: tensor.cpu().numpy() for name, tensor in feeds})
            return [torch.from_numpy(array) for array in arrays]

        return run


def onnx_model(exportable: Exportable, options: OnnxOptions) -> Any:
    """The model as torch exports it, with its tensors' own names; raise ExportError, naming layer
    and operator, where it cannot.
    """
    if (options.opset or 0) > NEWEST_OF_TORCH:
        raise ExportError(
            f"Opset {options.opset} cannot be had: torch's exporter writes up to "
            f"{NEWEST_OF_TORCH}; choose that or an older one."
        )
    tensors = exportable.tensors
    shapes = {"tensors": batch_dimensions(tensors)} if options.dynamic else None
    inputs = _with_tensors(exportable.inputs, doubled(tensors) if options.dynamic else tensors)
    names = exportable.input_names, exportable.output_names
    opset = None if options.opset is None else max(options.opset, OLDEST_OF_TORCH)
    try:
        with running(exportable.module), autocast_as_casts():
            program = onnx_program(exportable.module, inputs, shapes, names=names, opset=opset)
    except Exception as error:  # torch raises whatever the model's code raises
        raise _refused(exportable, error, dynamic=options.dynamic) from error
    model = program.model_proto
    widen_norms(model)
    if len(model.graph.input) != len(tensors):
        raise ExportError(
            f"{exportable.name} reads {len(tensors)} tensors, and its ONNX file "
            f"{len(model.graph.input)}; leave out the inputs that it does not use."
        )
    return model


def _with_tensors(inputs: Inputs, tensors: list[Tensor]) -> Inputs:
    """The same inputs with other tensors in their places."""
    remaining = iter(tensors)
    return inputs.map(lambda _: next(remaining))


def _refused(exportable: Exportable, error: Exception, *, dynamic: bool) -> ExportError:
    """The error of a failed export: an operator without a conversion, or what torch.export
    refuses.
    """
    for cause in causes(error):
        if isinstance(cause, ExportError):
            return cause
        match = NO_CONVERSION.search(str(cause))
        if match and not is_data_dependent(error):
            where = describe_layer(exportable.function, match[1], exportable.tensors)
            return ExportError(
                f"{exportable.name} cannot be exported to ONNX: operator {match[1]} in {where} has "
                "no conversion; replace it by operators of torch, or leave the layer out."
            )
    with stored_for_onnx(exportable.module):
        return refused(
            exportable.name, error, exportable.function, exportable.tensors, dynamic=dynamic
        )


def _describe(model: Any, exportable: Exportable, options: OnnxOptions) -> None:
    """Write into a model where it comes from, and name its open batch."""
    model.producer_name, model.producer_version = "paifuser-lab", version("paifuser-lab")
    properties = {
        "paifuser_lab.version": model.producer_version,
        "paifuser_lab.model": exportable.name,
        "paifuser_lab.precision": str(options.precision),
        "paifuser_lab.recipe": json.dumps(list(exportable.recipe), default=str),
        "paifuser_lab.weights_hash": exportable.weights_hash,
        "paifuser_lab.original_hash": exportable.original_hash or exportable.weights_hash,
    }
    if exportable.labels:
        properties["paifuser_lab.labels"] = json.dumps(exportable.labels)
    if (stated := exportable.work.preprocessing) is not None:
        properties["paifuser_lab.preprocessing"] = stated.model_dump_json()
    onnx.helper.set_model_props(model, properties)
    if options.dynamic:
        _name_batch(model.graph)


def _name_batch(graph: Any) -> None:
    """Call the first dimension of the inputs `batch`, in every shape that depends on it."""
    shapes = [value.type.tensor_type.shape for value in graph.input]
    symbols = {shape.dim[0].dim_param for shape in shapes if shape.dim and shape.dim[0].dim_param}
    pattern = re.compile(rf"\b({'|'.join(map(re.escape, symbols))})\b") if symbols else None
    for value in (*graph.input, *graph.output, *graph.value_info):
        for dim in value.type.tensor_type.shape.dim:
            if pattern and dim.dim_param:
                dim.dim_param = pattern.sub(BATCH, dim.dim_param)


def _save(model: Any, path: Path, inline_bytes: int) -> list[str]:
    """Write the file; large weights go beside it, under a name of their content, so that an older
    file beside them keeps its own.
    """
    weights = [tensor.raw_data for tensor in model.graph.initializer]
    if sum(map(len, weights)) <= inline_bytes:
        path.write_bytes(model.SerializeToString())
        return []
    digest = hashlib.sha256()
    for values in weights:
        digest.update(values)
    location = f"{path.stem}.{digest.hexdigest()[:8]}.data"
    onnx.save_model(model, str(path), save_as_external_data=True, location=location)
    return [f"its weights are in {location}, which has to stay beside it"]


def _session(path: Path, threads: int) -> Any:
    try:
        return session_of(str(path), threads)
    except Exception as error:  # the runtime's errors have no common class
        if type(error).__name__ == "NotImplemented":
            raise NotVerifiableError(
                f"ONNX Runtime has no CPU kernel for it ({first_line(error)})."
            ) from error
        raise ExportError(
            f"ONNX Runtime refuses the file ({first_line(error)}); no file was changed."
        ) from error
