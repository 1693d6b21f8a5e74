"""Quantization-aware training: layers rounded while they train, equal to the bit to the live
layers.

model             trained layers put into a model, and the live ones in their place afterwards
layer             a layer whose weight is rounded at every call
int8              one that rounds its input too and passes on int8; a batch-norm folded into it
weights_only      one that rounds its weights alone
learned_ranges    ranges and scales that are learned
straight_through  roundings that gradients pass
"""

from __future__ import annotations

from .int8 import QatInt8
from .layer import QatLayer
from .model import QatModel, prepare
from .weights_only import QatWeightsOnly

__all__ = ["QatInt8", "QatLayer", "QatModel", "QatWeightsOnly", "prepare"]
