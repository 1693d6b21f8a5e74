"""Techniques that reduce the error of rounding, applied before layers are replaced.

techniques  the techniques, applied in turn, with the output error before and after each
equalise    channels of neighbouring layers rescaled to the same range
smooth      outliers moved from a layer norm's output into the weights of its readers
rounding    weights rounded so that the layer's output changes least
curvature   how much a layer's output changes with its weights, and the rounding that follows
operands    the matrix that a layer multiplies its weights by
bias        the mean error of each output channel, corrected in the bias
context     the float model, its quantized layers, and what techniques may change of both
layer_data  the inputs and outputs of layers on the calibration data
consumers   which layers alone read a layer's output
"""

from __future__ import annotations

from .context import Context
from .techniques import TECHNIQUES, Technique, compensate

__all__ = ["TECHNIQUES", "Context", "Technique", "compensate"]
