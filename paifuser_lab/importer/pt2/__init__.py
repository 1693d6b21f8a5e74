"""Reads programs of torch.export: JSON and plain bytes in a zip archive, of which nothing runs.

archive    the zip, read within limits
program    what the JSON says: inputs, weights, operators, outputs
operators  which operators of torch are called, and which become layers
convert    the program as a torch module
load       the module, with example inputs
"""

from __future__ import annotations

from .load import load_pt2

__all__ = ["load_pt2"]
