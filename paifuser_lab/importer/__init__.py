"""Reads models from files of other tools, without executing anything that a file holds.

limits        what a file may ask for, and how its names are shown
tree          builds a torch module out of operators
hugging_face  folders of checkpoints that transformers wrote
onnx          ONNX files
"""

from __future__ import annotations

from .limits import Imported

__all__ = ["Imported"]
