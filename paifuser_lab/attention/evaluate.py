"""What a change of a layer's attention does: how far its output is from what it was, and what both
take, timed in turn.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import StoppedError
from ..measure import in_turn, output_error, own_ms, timed_ms
from ..model.watch import watching
from ..progress import progress
from ..workload import Inputs, running
from .attention import attend
from .discover import Call
from .redirect import SDPA
from .sparsity import Keeping

SECONDS = 0.5  # for the timing of two ways to do the same; seven rounds at least
CLEARLY = 0.95
EXACT, EXACT_IN_HALF = 1e-4, 0.02


@dataclass(frozen=True)
class Judged:
    """A layer before and after."""

    error: float
    before_ms: float
    after_ms: float

    @property
    def is_faster(self) -> bool:
        return self.after_ms < self.before_ms

    @property
    def is_clearly_faster(self) -> bool:
        """By more than times stray: what is paid for with an error has to be."""
        return self.after_ms < CLEARLY * self.before_ms

    @property
    def told(self) -> str:
        """For a note."""
        return f"{self.before_ms:.3g} ms become {self.after_ms:.3g} ms"


def compare_ms(
    before: Callable[[], Any], after: Callable[[], Any], device: torch.device, seconds: float
) -> tuple[float, float]:
    """What two calls take in turn."""
    is_alone = device.type == "cpu" and torch.get_num_threads() == 1
    taken = in_turn(
        {"before": before, "after": after}, device, seconds, own_ms if is_alone else timed_ms
    )
    return taken["before"], taken["after"]


def answer(call: Call, keeping: Keeping | None, fixed: Tensor | None = None) -> Tensor:
    """The output to one call, to all keys or to those that are kept."""
    attention = SDPA if keeping is None else partial(attend, keeping=keeping, fixed=fixed)
    made: Tensor = attention(call.query, call.key, call.value, **call.options)
    return made


def error_of(call: Call, keeping: Keeping, fixed: Tensor | None) -> float:
    """How far the output is from attention to all keys, in parts of the latter's norm."""
    with torch.no_grad():
        return output_error(answer(call, None), answer(call, keeping, fixed))[0]


def worst_error(calls: Sequence[Call], keeping: Keeping, fixed: Tensor | None) -> float:
    """The largest error of a layer's calls."""
    return max(error_of(call, keeping, fixed) for call in calls)


def judge_sparse(
    calls: Mapping[str, Sequence[Call]],
    keeping: Keeping,
    fixed: Mapping[str, Tensor | None],
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Judged]:
    """Each layer with attention to a part of the keys, over all of its calls; what is alike is
    timed once.
    """
    taken: dict[Any, tuple[float, float]] = {}
    found = {}
    with progress("attending to a part", len(calls)) as shown:
        for layer, ones in calls.items():
            for call in ones:
                _go_on(should_stop)
                if call.signature not in taken:
                    before, after = (
                        partial(answer, call, None),
                        partial(answer, call, keeping, fixed[layer]),
                    )
                    taken[call.signature] = compare_ms(before, after, call.query.device, SECONDS)
            before_ms, after_ms = (
                sum(times) for times in zip(*(taken[call.signature] for call in ones), strict=True)
            )
            found[layer] = Judged(worst_error(ones, keeping, fixed[layer]), before_ms, after_ms)
            shown.advance(doing=layer)
    return found


def judge_layers(
    model: nn.Module,
    changed: nn.Module,
    layers: Sequence[str],
    inputs: Inputs,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Judged]:
    """Each layer of a model beside that of a changed copy, on its input; what is alike is
    timed once.
    """
    taken: dict[Any, tuple[float, float]] = {}
    found = {}
    given = _given(model, layers, inputs)
    with running(model), running(changed), progress("attending in windows", len(given)) as shown:
        for layer, arguments in given.items():
            _go_on(should_stop)
            before, after = (
                partial(arguments, one.get_submodule(layer)) for one in (model, changed)
            )
            key = (
                str(model.get_submodule(layer)),
                _shapes(arguments),
                getattr(model.get_submodule(layer), "shift", None),
            )
            if key not in taken:
                taken[key] = compare_ms(before, after, next(model.parameters()).device, SECONDS)
            found[layer] = Judged(output_error(before(), after())[0], *taken[key])
            shown.advance(doing=layer)
    return found


def exact(model: nn.Module) -> float:
    """What an exact change may differ by, by the format that a model computes in."""
    is_half = any(
        weight.is_floating_point() and weight.itemsize < 4 for weight in model.parameters()
    )
    return EXACT_IN_HALF if is_half else EXACT


def _given(model: nn.Module, layers: Sequence[str], inputs: Inputs) -> dict[str, Inputs]:
    """What some layers are given in one run."""
    found: dict[str, Inputs] = {}

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if layer in layers and layer not in found:
            found[layer] = Inputs(args, kwargs).clone()

    given = inputs.clone()
    with running(model), watching(model, enter, lambda layer, output: None):
        given(model)
    return found


def _shapes(inputs: Inputs) -> tuple[Any, ...]:
    return tuple(
        tuple(leaf.shape) if isinstance(leaf, Tensor) else repr(leaf)
        for leaf in pytree.tree_leaves((inputs.args, inputs.kwargs))
    )


def _go_on(should_stop: Callable[[], bool]) -> None:
    if should_stop():
        raise StoppedError("was stopped while layers were timed; nothing was changed.")
