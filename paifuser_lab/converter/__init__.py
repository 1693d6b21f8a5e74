"""Export models to other file formats, one module each. `onnx` writes ONNX files, and `origins`
says which layers a node of such a file was made of.
"""

from __future__ import annotations

from .onnx import export_onnx
from .origins import Graph, Node, Part, read_graph

__all__ = [
    "Graph",
    "Node",
    "Part",
    "export_onnx",
    "read_graph",
]
