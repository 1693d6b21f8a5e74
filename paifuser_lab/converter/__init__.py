"""A model on its way out of the lab: one file a target. `onnx` writes ONNX files."""

from __future__ import annotations

from .onnx import export_onnx

__all__ = [
    "export_onnx",
]
