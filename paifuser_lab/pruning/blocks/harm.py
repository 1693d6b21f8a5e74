"""Find the blocks whose removal changes a model's output least: each is removed alone, then the
best ones again together with those already chosen.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Sequence

from torch import nn

from ...errors import StoppedError
from ...measure import output_error
from ...model.replace import replace_layer
from ...progress import progress
from ...records import counted
from ...workload import Inputs, running
from .blocks import Blocks
from .proof import leave_out

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
