"""The ONNX operators that have a counterpart in torch, a file for each family.

registry   the table, and what a rule is given
sizes      arithmetic of shapes
layers     convolutions, products with weights, norms, pools
pointwise  arithmetic, comparisons, activations, casts, rounding
shapes     reshape, transpose, slice, gather, pad, resize
reduction  sums, means, extremes
"""

from . import layers, pointwise, reduction, shapes, sizes  # noqa: F401 (they fill the tables)
from .registry import OPERATORS, SIZE_RULES, Call, Sizes

__all__ = ["OPERATORS", "SIZE_RULES", "Call", "Sizes"]
