"""Quantization-aware training: layers that are rounded while they learn, and answer to the bit with
what the live layers will.

preparing.py     learning layers put into a model, and the live ones in their place afterwards
layer.py         a layer whose weight is rounded at every call
int8.py          one that rounds what it is given too, and hands on in int8
weights_only.py  one that rounds its weights alone
norm.py          a batch-norm on its way into the layer before it
steps.py         ranges and scales that are learned
straight.py      roundings that gradients pass
"""

from __future__ import annotations

from .int8 import LearningInt8
from .layer import LearningLayer
from .learning_model import Learners, prepare
from .weights_only import LearningWeights

__all__ = ["Learners", "LearningInt8", "LearningLayer", "LearningWeights", "prepare"]
