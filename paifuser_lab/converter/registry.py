"""The targets of export, by name. A new target is one file and one line here."""

from __future__ import annotations

from importlib import import_module

from ..errors import ExportError
from .target import Target

# name → the target's class
TARGETS = {
    "onnx": ".onnx_file:OnnxFile",
    "openvino": ".openvino:OpenVinoIR",
    "torch_export": ".torch_export:TorchExport",
    "aotinductor": ".aotinductor:AotInductor",
    "executorch": ".executorch:ExecuTorch",
    "coreml": ".coreml:CoreML",
    "litert": ".litert:LiteRT",
    "tensorrt": ".tensorrt:TensorRT",
    "hls": ".hls:Hls",
    "gguf": ".gguf:Gguf",
}
REFUSED = {
    "torchscript": "tracing fixes every branch to what one example took, which gives wrong answers "
    "without an error, and torch no longer develops it; choose onnx or torch_export",
}


def target_names() -> tuple[str, ...]:
    """The names of all targets."""
    return tuple(TARGETS)


def target_of(name: str) -> Target:
    """The target of this name; raise where there is none, or none on purpose."""
    if name in REFUSED:
        raise ExportError(f"Export to {name} is refused: {REFUSED[name]}.")
    if name not in TARGETS:
        raise ExportError(
            f"There is no target {name!r} to export to; there are {', '.join(TARGETS)}."
        )
    file, _, kind = TARGETS[name].partition(":")
    target: Target = getattr(import_module(file, __package__), kind)()
    return target
