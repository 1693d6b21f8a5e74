"""The shorter model against the same model with zeros in the blocks that are left out: they must
answer the same.
"""

from __future__ import annotations

import copy
from collections.abc import Collection

import torch
from torch import nn

from ...errors import first_line
from ...model.replace import replace_layer
from ...workload import Inputs
from ..groups.proof import (
    HALF_TOLERANCE,
    TOLERANCE,
    answers_of,
    exact_copy,
    format_of,
    relative_gap,
)
from .blocks import Blocks, emptied
from .pass_through import replacement_for


def obstacle(
    model: nn.Module, inputs: Inputs, blocks: Blocks, layers: Collection[str]
) -> str | None:
    """Why these blocks cannot be left out together; None where they can."""
    exact, given = exact_copy(model, inputs)
    zeroed, shorter = copy.deepcopy(exact), copy.deepcopy(exact)
    for layer in layers:
        emptied(zeroed.get_submodule(layer))
    leave_out(shorter, blocks, layers)
    tolerance = TOLERANCE.get(format_of(exact), HALF_TOLERANCE)
    for one in given:
        expected = answers_of(zeroed, one)
        try:
            error = relative_gap(expected, answers_of(shorter, one))
        except Exception as problem:  # whatever the model's code raises
            return f"the model's code does not take it shorter ({first_line(problem)[:160]})"
        if not error <= tolerance:
            return f"without it the answer differs by {error:.0e} from that with zeros"
    return None


def leave_out(model: nn.Module, blocks: Blocks, layers: Collection[str]) -> None:
    """Put what answers its input in the places of these blocks."""
    with torch.no_grad():
        for layer in layers:
            replace_layer(
                model, layer, replacement_for(model.get_submodule(layer), blocks.free[layer])
            )
