"""OpenVINO's intermediate representation: an XML file of operators and a file of weights."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import torch
from torch import Tensor

from ..errors import optional_module
from .delivery import WEIGHTS
from .exportable import Exportable
from .target import Conversion, Run, Target, TargetOptions


class OpenVinoIR(Target):
    """Reads the ONNX file as the engine does; int8 stays quantize and dequantize nodes, which the
    runtime fuses.
    """

    name = "openvino"
    title = "OpenVINO"
    suffix = ".xml"
    extra, needs = "backends", "openvino"
    precisions = ("fp32", "fp16", "bf16", "int8")

    def convert(self, exportable: Exportable, path: Path, options: TargetOptions) -> Conversion:
        import openvino

        from .onnx_file import OnnxFile  # and so onnx, which `openvino_core` does without

        onnx = OnnxFile()
        with TemporaryDirectory(dir=path.parent) as folder:
            source = Path(folder) / "model.onnx"
            done = onnx.convert(exportable, source, onnx.checked_options(options.model_dump()))
            model = openvino_core().read_model(str(source))
            openvino.save_model(model, str(path), compress_to_fp16=False)
            del model  # it maps the ONNX file
        return Conversion(tuple(note for note in done.notes if not WEIGHTS.search(note)))

    def opened(self, path: Path, threads: int) -> Run:
        request = infer_request(path, threads)

        def run(tensors: list[Tensor]) -> list[Tensor]:
            found: Any = request.infer(
                [tensor.detach().cpu().numpy() for tensor in tensors], share_inputs=True
            )
            return [torch.from_numpy(array.copy()) for array in found.values()]

        return run


def infer_request(path: Path, threads: int, precision: str = "f32", **more: Any) -> Any:
    """A file, compiled for latency on the CPU, and the request that all its calls use."""
    settings = {
        "INFERENCE_NUM_THREADS": threads,
        "INFERENCE_PRECISION_HINT": precision,
        "PERFORMANCE_HINT": "LATENCY",
        "ENABLE_MMAP": False,
        # else it rounds the inputs of layers with int4 weights to int8, where the CPU has VNNI
        "DYNAMIC_QUANTIZATION_GROUP_SIZE": 0,
        **more,
    }
    core = openvino_core()
    return core.compile_model(core.read_model(str(path)), "CPU", settings).create_infer_request()


@cache
def openvino_core() -> Any:
    """OpenVINO's entry point; the one place where it is imported."""
    needed_for = "backend 'openvino'"
    return optional_module("openvino", extra="backends", needed_for=needed_for).Core()
