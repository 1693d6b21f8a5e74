"""Quantization-aware training: layers rounded while they train, bit-identical to the quantized
layers that replace them.

model             trained layers put into a model, and converted to quantized ones afterwards
layer             a layer whose weight is rounded at every call
int8              one that also rounds its input and passes int8 on, with a folded batch-norm
weights_only      one that rounds only its weights
learned_ranges    learned ranges and scales
straight_through  roundings with straight-through gradients
"""

from __future__ import annotations

from .int8 import QatInt8
from .layer import QatLayer
from .model import QatModel, prepare
from .weights_only import QatWeightsOnly

__all__ = ["QatInt8", "QatLayer", "QatModel", "QatWeightsOnly", "prepare"]
