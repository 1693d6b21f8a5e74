"""Quantization-aware training: layers rounded while they train, bit-identical to the quantized
layers that replace them.

model             trained layers put into a model, and converted to quantized ones afterwards
layers            layers that round their weight at every call, and in int8 their input too
straight_through  roundings with straight-through gradients; learned ranges and scales
"""

from __future__ import annotations

from .layers import QatInt8, QatLayer, QatWeightsOnly
from .model import QatModel, prepare

__all__ = ["QatInt8", "QatLayer", "QatModel", "QatWeightsOnly", "prepare"]
