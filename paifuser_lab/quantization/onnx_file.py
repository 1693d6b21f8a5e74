"""An ONNX file that runs as it is, in int8: quantized on data by ONNX Runtime's own tool."""

from __future__ import annotations

import logging
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy
import onnx
import torch
from onnx import numpy_helper
from torch import Tensor

from ..errors import StepError, first_line
from ..importer.limits import MAX_FILE
from ..importer.onnx import OnnxModel
from ..model.formats import integer_bits, may_saturate
from ..workload import Inputs, Workload
from ..workload.data.source import calibration_batches
from .quantize import REDUCED

INSERTED = ("QuantizeLinear", "DynamicQuantizeLinear")


def quantize_file(
    work: Workload, model: OnnxModel, batches: int, *, reduced_range: bool | None = None
) -> list[str]:
    """Replace the file in the model by one in int8; returns notes on what was done."""
    if model.folder:
        raise StepError(
            "the file keeps its weights in files beside it, which are not quantized here; put them "
            "into it with onnx.save, and load that."
        )
    inputs = calibration_batches(work, batches) or [work.inputs]
    feeds = [_feed(model, each) for each in inputs]
    before = len(model.file)
    is_reduced = integer_bits("int8", reduced_range=reduced_range) < 8
    content = _quantized(model.file.numpy().tobytes(), feeds, reduce_range=is_reduced)
    count = sum(node.op_type in INSERTED for node in onnx.load_from_string(content).graph.node)
    if not count:
        raise StepError(
            "none of the file's operators can be quantized: ONNX Runtime rounds products and "
            "convolutions with fixed weights."
        )
    model.replace(content)
    source = "the workload's data" if inputs[0] is not work.inputs else "the example inputs"
    return [
        "ONNX only: the file is quantized by ONNX Runtime, and its layers are neither seen nor "
        "changed here",
        f"{count} tensors are rounded to 8 bits, with ranges found on {source}; the file has "
        f"{len(content):,} bytes where it had {before:,}",
        *([REDUCED] if is_reduced else []),
    ]


def make_room(model: OnnxModel, size: Any) -> None:
    """Give the model a file of this size, whose content is loaded afterwards."""
    if not isinstance(size, int) or not 0 < size <= MAX_FILE:
        raise StepError(f"a file of {size!r} bytes is no ONNX file.")
    model.replace(bytes(size))


def reduce_file(model: OnnxModel) -> int:
    """Round the file's int8 weights that would saturate here again, within 7 bits; how many there
    were. The file keeps its size.

    Integers are halved and their scales doubled; so are those of the biases, whose scale is the
    input's times the weight's.
    """
    content = onnx.load_from_string(model.file.numpy().tobytes())
    numbers = {tensor.name: tensor for tensor in content.graph.initializer}
    dequantized = {
        node.output[0]: (numbers[node.input[0]], numbers[node.input[1]])
        for node in content.graph.node
        if node.op_type == "DequantizeLinear" and {*node.input[:2]} <= numbers.keys()
    }
    weights = {name for name, (values, _) in dequantized.items() if _may_saturate(values)}
    biases = {
        node.input[2]
        for node in content.graph.node
        if len(node.input) > 2 and node.input[1] in weights and node.input[2] in dequantized
    }
    pairs = {dequantized[name][0].name: dequantized[name] for name in weights | biases}
    for values, scales in pairs.values():
        halves = numpy.rint(numpy_helper.to_array(values) / 2)
        _overwrite(values, halves)
        _overwrite(scales, 2 * numpy_helper.to_array(scales))
    if weights:
        model.replace(content.SerializeToString())
    return len(weights)


def _may_saturate(tensor: onnx.TensorProto) -> bool:
    is_int8 = tensor.data_type == onnx.TensorProto.INT8
    return is_int8 and may_saturate(torch.from_numpy(numpy_helper.to_array(tensor).copy()))


def _overwrite(tensor: onnx.TensorProto, values: Any) -> None:
    kind = numpy_helper.to_array(tensor).dtype
    tensor.CopyFrom(numpy_helper.from_array(values.astype(kind), tensor.name))


def _feed(model: OnnxModel, inputs: Inputs) -> dict[str, Any]:
    named = dict(zip(model.input_names, inputs.args, strict=False)) | inputs.kwargs
    return {
        name: value.detach().cpu().numpy()
        for name, value in named.items()
        if isinstance(value, Tensor)
    }


def _quantized(content: bytes, feeds: list[dict[str, Any]], *, reduce_range: bool) -> bytes:
    from onnxruntime.quantization import CalibrationDataReader, QuantType, quantize_static

    class Reader(CalibrationDataReader):  # type: ignore[misc]  # onnxruntime has no types
        """Gives the batches one after another."""

        def __init__(self) -> None:
            self.remaining = iter(feeds)

        def get_next(self) -> dict[str, Any] | None:
            return next(self.remaining, None)

    with tempfile.TemporaryDirectory(prefix="paifuser-int8-") as folder, _quiet():
        source, target = Path(folder, "float.onnx"), Path(folder, "int8.onnx")
        source.write_bytes(content)
        try:
            quantize_static(
                source,
                target,
                Reader(),
                per_channel=True,
                reduce_range=reduce_range,
                activation_type=QuantType.QUInt8,
            )
        except Exception as error:  # ONNX Runtime's tool raises whatever a graph makes it raise
            raise StepError(
                f"ONNX Runtime cannot quantize the file ({type(error).__name__}: "
                f"{first_line(error).rstrip('.')}); leave the step out."
            ) from error
        return target.read_bytes()


@contextmanager
def _quiet() -> Iterator[None]:
    """Without the tool's advice on the root logger."""
    level = logging.root.level
    logging.root.setLevel(logging.ERROR)
    try:
        yield
    finally:
        logging.root.setLevel(level)
