"""What operators do to labels, a file a family. A new rule is a function with the operators' names
above it.

call.py         one call of an operator, and the registry
pointwise.py    elementwise, with broadcasting
moving.py       views, permutations, parts, concatenation, indices, padding, shuffles
reducing.py     sums, means, softmax, pools, interpolation
products.py     matrix products and attention
convolving.py   convolutions and norms
"""

from __future__ import annotations

import torch

from ....errors import first_line
from ..label_space import Labels
from . import convolution, products, reduction, shape
from .call import CONSTANTS, RULES, Call
from .pointwise import pointwise

__all__ = [
    "CONSTANTS",
    "RULES",
    "Call",
    "convolution",
    "products",
    "reduction",
    "results_of",
    "shape",
]


def results_of(call: Call) -> list[Labels]:
    """The labels of what an operator made; one without a rule holds everything that it touches."""
    found = RULES.get(call.name)
    if found is None and torch.Tag.pointwise in call.operator.tags:
        found = pointwise
    if found is None:
        return _held(call, f"operator '{call.name}' has no rule")
    try:
        made = found(call)
    except Exception as error:  # a smaller result rather than none: nothing that it touches is cut
        return _held(call, f"{call.where} is beyond its rule ({first_line(error)})")
    fits = all(
        label.shape == result.shape
        for labels, result in zip(made, call.results, strict=True)
        for label in labels
    )
    return made if fits else _held(call, f"{call.where} is beyond its rule")


def _held(call: Call, reason: str) -> list[Labels]:
    for tensor in call.tensors:
        call.space.fix(call.known(tensor), reason)
    return [()] * len(call.results)
