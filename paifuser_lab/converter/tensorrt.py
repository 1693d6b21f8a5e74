"""TensorRT: a checked ONNX file and the command that builds the engine from it on a GPU."""

from __future__ import annotations

from pathlib import Path

from ..errors import ExportError
from ..measure import output_error
from .exportable import Exportable
from .onnx_file import OnnxFile
from .program import batch_of
from .target import Conversion, Run, Target, TargetOptions, not_run

MODEL, ENGINE, SCRIPT = "model.onnx", "model.engine", "build.sh"
BATCHES = (1, 8, 32)  # of an engine that takes any batch: the least, the usual, the most
BUILD = "the engine is built where there is an NVIDIA GPU and TensorRT, by its build.sh"


class TensorRT(Target):
    """Writes a folder of an ONNX file and a script. An engine fits only the GPU and the version of
    TensorRT that built it, so that it is built on the machine that runs it.
    """

    name = "tensorrt"
    title = "TensorRT"
    suffix = ".tensorrt"
    precisions = ("fp32", "fp16", "bf16", "int8")  # int8 is refused with its reason, by layer

    def convert(self, exportable: Exportable, path: Path, options: TargetOptions) -> Conversion:
        for layer, kind in exportable.quantized.items():
            raise ExportError(
                f"layer '{layer}' of {exportable.name} is in {kind}, whose zero points and packed "
                "weights TensorRT does not take; export the original in fp16, or this to ONNX."
            )
        path.mkdir()
        onnx = OnnxFile()
        onnx_options = onnx.checked_options(options.model_dump())
        done = onnx.convert(exportable, path / MODEL, onnx_options)
        outputs = onnx.opened(path / MODEL, 1)(exportable.tensors)
        error, _ = output_error(exportable.reference, outputs)
        precision = options.precision or exportable.precision
        if not error <= self.tolerance(precision):
            raise ExportError(
                f"the ONNX file for TensorRT differs from {exportable.name} by {error:.1e}; "
                "nothing was written."
            )
        script = build_script(exportable, dynamic=options.dynamic, precision=precision)
        (path / SCRIPT).write_text(script, encoding="utf-8")
        return Conversion(
            (
                *done.notes,
                f"its ONNX file in ONNX Runtime: relative error {error:.1e}",
                command(script),
            ),
            done.opset,
        )

    def opened(self, path: Path, threads: int) -> Run:
        raise not_run(self.title, BUILD)


def build_script(exportable: Exportable, *, dynamic: bool, precision: str) -> str:
    """A shell script that builds the engine beside the ONNX file and times it.

    `--stronglyTyped` keeps the types that the file has; TensorRT 10 needs it and 11 does so anyway.
    """
    options = [f"--onnx={MODEL}", f"--saveEngine={ENGINE}", "--stronglyTyped"]
    if precision == "fp32":
        options.append("--noTF32")
    if dynamic:
        count = batch_of(exportable.tensors)
        shapes = [list(tensor.shape) for tensor in exportable.tensors]
        for option, batch in zip(("minShapes", "optShapes", "maxShapes"), BATCHES, strict=True):
            sizes = [
                f"{name}:{'x'.join(map(str, [batch, *shape[1:]]))}"
                for name, shape in zip(exportable.input_names, shapes, strict=True)
                if shape[:1] == [count]  # the others have a fixed shape in the file
            ]
            options.append(f"--{option}={','.join(sizes)}")
    lines = " \\\n  ".join(["trtexec", *options])
    return f'#!/bin/sh\nset -e\ncd "$(dirname "$0")"\n{lines}\n'


def command(script: str) -> str:
    """The command of a build script in one line."""
    _, _, call = script.partition("trtexec")
    return f"trtexec{call}".replace("\\\n  ", "").strip()
