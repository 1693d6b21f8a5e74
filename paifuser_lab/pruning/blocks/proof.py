"""Check that the shortened model's output equals that of the full model with the removed blocks
zeroed.
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
    exact_copy,
    format_of,
    outputs_of,
    relative_gap,
)
from .blocks import Blocks, zeroed
from .pass_through import replacement_for


def obstacle(
    model: nn.Module, inputs: Inputs, blocks: Blocks, layers: Collection[str]
) -> str | None:
    """Why these blocks cannot be removed together; None where they can."""
    exact, examples = exact_copy(model, inputs)
    masked, shorter = copy.deepcopy(exact), copy.deepcopy(exact)
    for layer in layers:
        zeroed(masked.get_submodule(layer))
    leave_out(shorter, blocks, layers)
    tolerance = TOLERANCE.get(format_of(exact), HALF_TOLERANCE)
    for example in examples:
        expected = outputs_of(masked, example)
        try:
            error = relative_gap(expected, outputs_of(shorter, example))
        except Exception as problem:  # whatever the model's code raises
            return f"the model's code fails without it ({first_line(problem)[:160]})"
        if not error <= tolerance:
            return f"without it the output differs by {error:.0e} from the output with zeros"
    return None


def leave_out(model: nn.Module, blocks: Blocks, layers: Collection[str]) -> None:
    """Replace these blocks by modules that return their input."""
    with torch.no_grad():
        for layer in layers:
            replace_layer(
                model, layer, replacement_for(model.get_submodule(layer), blocks.free[layer])
            )
