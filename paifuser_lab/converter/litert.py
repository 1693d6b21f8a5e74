"""LiteRT (once TensorFlow Lite): models for Android and small devices."""

from __future__ import annotations

from contextlib import redirect_stdout
from importlib.util import find_spec
from io import StringIO
from pathlib import Path

import torch
from torch import Tensor

from ..errors import ExportError
from ..model.silence import compilers_silenced
from ..workload import running
from .exportable import Exportable
from .target import Conversion, Run, Target, TargetOptions


class LiteRT(Target):
    """Converts with litert-torch, whose versions of other packages conflict with those here, so
    that it needs an environment of its own.
    """

    name = "litert"
    title = "LiteRT"
    suffix = ".tflite"
    precisions = ("fp32",)

    def obstacle(self) -> str:
        if find_spec("litert_torch"):
            return ""
        return (
            "litert-torch is not installed; it conflicts with other packages here, so install it "
            "beside paifuser-lab in an environment of its own: pip install paifuser-lab "
            "litert-torch."
        )

    def convert(self, exportable: Exportable, path: Path, options: TargetOptions) -> Conversion:
        if options.dynamic:
            raise ExportError(
                f"{self.title} is written for the example's batch alone here; leave `dynamic` out."
            )
        with compilers_silenced(), redirect_stdout(StringIO()), running(exportable.module):
            import litert_torch

            edge = litert_torch.convert(exportable.function, tuple(exportable.tensors))
            edge.export(str(path))
        return Conversion()

    def opened(self, path: Path, threads: int) -> Run:
        from ai_edge_litert.interpreter import Interpreter

        interpreter = Interpreter(model_path=str(path), num_threads=threads)
        interpreter.allocate_tensors()
        inputs, outputs = interpreter.get_input_details(), interpreter.get_output_details()
        runner = interpreter.get_signature_runner() if interpreter.get_signature_list() else None
        order = sorted(runner.get_input_details(), key=_place) if runner else []

        def run(tensors: list[Tensor]) -> list[Tensor]:
            arrays = [tensor.detach().contiguous().numpy() for tensor in tensors]
            if runner:
                found = runner(**dict(zip(order, arrays, strict=True)))
                return [torch.from_numpy(found[name]) for name in sorted(found, key=_place)]
            for detail, array in zip(inputs, arrays, strict=True):
                interpreter.set_tensor(detail["index"], array)
            interpreter.invoke()
            return [torch.from_numpy(interpreter.get_tensor(one["index"])) for one in outputs]

        return run


def _place(name: str) -> tuple[int, str]:
    """The place of a tensor in the signature: 10 of args_10, which is behind args_9."""
    number = name.rpartition("_")[2]
    return int(number) if number.isdecimal() else 0, name
