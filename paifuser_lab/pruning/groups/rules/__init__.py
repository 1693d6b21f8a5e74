"""How operators act on labels, one file per family. A new rule is a function decorated with the
operators' names.

call.py         one call of an operator, and the registry
pointwise.py    elementwise, with broadcasting
shape.py        views, permutations, parts, concatenation, indices, padding, shuffles
reduction.py    sums, means, softmax, pools, interpolation
products.py     matrix products and attention
convolution.py  convolutions and norms
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
    """The labels of an operator's outputs; for one without a rule, all of its inputs are fixed."""
    rule = RULES.get(call.name)
    if rule is None and torch.Tag.pointwise in call.operator.tags:
        rule = pointwise
    if rule is None:
        return _fixed(call, f"operator '{call.name}' has no rule")
    try:
        outputs = rule(call)
    except Exception as error:  # rather than fail, cut nothing that the operator reads
        return _fixed(call, f"{call.where} is not covered by its rule ({first_line(error)})")
    fits = all(
        label.shape == result.shape
        for labels, result in zip(outputs, call.results, strict=True)
        for label in labels
    )
    return outputs if fits else _fixed(call, f"{call.where} is not covered by its rule")


def _fixed(call: Call, reason: str) -> list[Labels]:
    for tensor in call.tensors:
        call.space.fix(call.known(tensor), reason)
    return [()] * len(call.results)
