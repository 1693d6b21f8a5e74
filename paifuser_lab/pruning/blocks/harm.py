"""Find the blocks whose removal changes a model's output least: each is removed alone, then the
best ones again together with those already chosen.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Sequence

import torch
from torch import nn

from ...errors import StoppedError, first_line
from ...measure import output_error
from ...model.replace import replace_layer
from ...progress import progress
from ...records import counted
from ...workload import Inputs, running
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


RETRIED = 4  # in each round: the best candidates of the round before


def least_harm(
    model: nn.Module,
    inputs: Inputs,
    blocks: Blocks,
    candidates: Sequence[str],
    gone: Sequence[str],
    count: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """Choose `count` more blocks, in order of removal, with the relative output error without all
    of them so far.
    """
    shorter = copy.deepcopy(model)
    expected = _output(model, inputs)
    leave_out(shorter, blocks, gone)
    errors = dict.fromkeys(candidates, 0.0)
    chosen: dict[str, float] = {}
    with progress("leaving blocks out", len(candidates) + (count - 1) * RETRIED) as shown:
        while len(chosen) < count and errors:
            best = sorted(errors, key=lambda layer: errors[layer])
            for layer in best[:RETRIED] if chosen else best:
                if should_stop():
                    raise StoppedError(
                        f"was stopped after {len(chosen)} of {counted(count, 'block')}; nothing "
                        "was changed."
                    )
                block = shorter.get_submodule(layer)
                leave_out(shorter, blocks, (layer,))
                errors[layer] = output_error(expected, _output(shorter, inputs))[0]
                replace_layer(shorter, layer, block)
                shown.advance(doing=layer)
            layer = min(errors, key=lambda layer: errors[layer])
            chosen[layer] = errors.pop(layer)
            leave_out(shorter, blocks, (layer,))
    return chosen


def _output(model: nn.Module, inputs: Inputs) -> object:
    own_inputs = inputs.clone()
    with running(model):
        return own_inputs(model)
