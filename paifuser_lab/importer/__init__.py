"""Reads models from files of other tools, without executing anything that a file holds.

limits        what a file may ask for, and how its names are shown
examples      inputs made up from the shapes that a file declares
tree          builds a torch module out of operators
hugging_face  folders of checkpoints that transformers wrote
onnx          ONNX files
pt2           programs of torch.export
"""

from __future__ import annotations

from .limits import Imported

__all__ = ["Imported"]
