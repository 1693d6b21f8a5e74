"""Techniques that reduce the error of rounding, applied before layers are replaced.

techniques  the techniques, applied in turn, with the output error before and after each; the bias
rescale     equalise and smooth: channels rescaled between layers, without changing the model
rounding    weights rounded so that the layer's output changes least
operands    the matrix that a layer multiplies its weights by, and its output as rows
context     the float model, its quantized layers, what techniques may change of both, their data
"""

from __future__ import annotations

from .context import Context
from .techniques import TECHNIQUES, Technique, compensate

__all__ = ["TECHNIQUES", "Context", "Technique", "compensate"]
