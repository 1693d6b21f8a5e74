"""The blocks without which a model's answer changes least: each is left out alone, then the best
ones again beside those that went.
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
from .pass_through import replacement_for

JUDGED_AGAIN = 4  # in each round those that looked best in the round before


def least_harm(
    model: nn.Module,
    inputs: Inputs,
    blocks: Blocks,
    candidates: Sequence[str],
    gone: Sequence[str],
    count: int,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, float]:
    """So many more blocks, in the order in which they go, and the relative error of the answer
    without all of them so far.
    """
    shorter = copy.deepcopy(model)
    expected = _answer(model, inputs)
    for layer in gone:
        _replace(shorter, blocks, layer)
    errors = dict.fromkeys(candidates, 0.0)
    chosen: dict[str, float] = {}
    with progress("leaving blocks out", len(candidates) + (count - 1) * JUDGED_AGAIN) as shown:
        while len(chosen) < count and errors:
            best = sorted(errors, key=lambda layer: errors[layer])
            for layer in best[:JUDGED_AGAIN] if chosen else best:
                if should_stop():
                    raise StoppedError(
                        f"was stopped after {len(chosen)} of {counted(count, 'block')}; nothing "
                        "was changed."
                    )
                block = shorter.get_submodule(layer)
                _replace(shorter, blocks, layer)
                errors[layer] = output_error(expected, _answer(shorter, inputs))[0]
                replace_layer(shorter, layer, block)
                shown.advance(doing=layer)
            layer = min(errors, key=lambda layer: errors[layer])
            chosen[layer] = errors.pop(layer)
            _replace(shorter, blocks, layer)
    return chosen


def _replace(model: nn.Module, blocks: Blocks, layer: str) -> None:
    replace_layer(model, layer, replacement_for(model.get_submodule(layer), blocks.free[layer]))


def _answer(model: nn.Module, inputs: Inputs) -> object:
    given = inputs.clone()
    with running(model):
        return given(model)
