"""Export models to other file formats, one module each. `onnx` writes ONNX files."""

from __future__ import annotations

from .onnx import export_onnx

__all__ = [
    "export_onnx",
]
