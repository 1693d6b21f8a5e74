"""Reads ONNX files as models.

proto      the message and the weights beside it, checked before they are used
examples   example inputs from the shapes that the file declares
rewrite    activations that were written as several nodes
operators  the counterpart of each operator in torch
convert    the file as a torch module
probe      a process with limits of memory and time
runtime    the file in ONNX Runtime
load       which of the two, with parity proven
"""

from .load import load_onnx
from .runtime import OnnxModel

__all__ = ["OnnxModel", "load_onnx"]
