"""The effect of changes to a layer's attention: the output's error, and the time in turn."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import stop_if_asked
from ..measure import clock_for, in_turn, output_error
from ..model.watch import watching
from ..progress import progress
from ..records.text import three_figures
from ..workload import Inputs, running
from .attention import attend
from .block_lists import Sparsity
from .discover import Call
from .redirect import SDPA

SECONDS = 0.5  # for timing two variants of a layer; at least seven rounds
CLEARLY = 0.95
EXACT, EXACT_IN_HALF = 1e-4, 0.02
STOPPED = "was stopped while layers were timed; nothing was changed."


@dataclass(frozen=True)
class Evaluated:
    """The error and the time of a changed layer."""

    error: float
    before_ms: float
    after_ms: float

    @property
    def is_faster(self) -> bool:
        return self.after_ms < self.before_ms

    @property
    def is_clearly_faster(self) -> bool:
        """Whether it is faster by more than noise, as a change with an error has to be."""
        return self.after_ms < CLEARLY * self.before_ms

    @property
    def label(self) -> str:
        """The times, for a note."""
        return f"{three_figures(self.before_ms)} ms become {three_figures(self.after_ms)} ms"


def compare_ms(
    before: Callable[[], Any], after: Callable[[], Any], device: torch.device, seconds: float
) -> tuple[float, float]:
    """The ms of two calls, timed in turn."""
    taken = in_turn({"before": before, "after": after}, device, seconds, clock_for(device))
    return taken["before"], taken["after"]


def attention_output(call: Call, sparsity: Sparsity | None, fixed: Tensor | None = None) -> Tensor:
    """The output of one call with all keys, or with a part of them."""
    attention = SDPA if sparsity is None else partial(attend, sparsity=sparsity, fixed=fixed)
    output: Tensor = attention(call.query, call.key, call.value, **call.options)
    return output


def error_of(call: Call, sparsity: Sparsity, fixed: Tensor | None) -> float:
    """The relative L2 error against attention to all keys."""
    with torch.no_grad():
        return output_error(attention_output(call, None), attention_output(call, sparsity, fixed))[
            0
        ]


def worst_error(calls: Sequence[Call], sparsity: Sparsity, fixed: Tensor | None) -> float:
    """The largest error of a layer's calls."""
    return max(error_of(call, sparsity, fixed) for call in calls)


def evaluate_sparse(
    calls: Mapping[str, Sequence[Call]],
    sparsity: Sparsity,
    fixed: Mapping[str, Tensor | None],
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Evaluated]:
    """Each layer attending to a part of the keys; calls of equal signature are timed once."""
    taken: dict[Any, tuple[float, float]] = {}
    results = {}
    with progress("attending to a part", len(calls)) as shown:
        for layer, layer_calls in calls.items():
            for call in layer_calls:
                stop_if_asked(should_stop, STOPPED)
                if call.signature not in taken:
                    before, after = (
                        partial(attention_output, call, None),
                        partial(attention_output, call, sparsity, fixed[layer]),
                    )
                    taken[call.signature] = compare_ms(before, after, call.query.device, SECONDS)
            before_ms, after_ms = (
                sum(times)
                for times in zip(*(taken[call.signature] for call in layer_calls), strict=True)
            )
            results[layer] = Evaluated(
                worst_error(layer_calls, sparsity, fixed[layer]), before_ms, after_ms
            )
            shown.advance(doing=layer)
    return results


def evaluate_layers(
    model: nn.Module,
    changed: nn.Module,
    layers: Sequence[str],
    inputs: Inputs,
    should_stop: Callable[[], bool] = lambda: False,
) -> dict[str, Evaluated]:
    """Each layer against that of a changed copy, on its inputs; equal layers are timed once."""
    taken: dict[Any, tuple[float, float]] = {}
    results = {}
    layer_inputs = _inputs_of(model, layers, inputs)
    shown_as = progress("attending in windows", len(layer_inputs))
    with running(model), running(changed), shown_as as shown:
        for layer, arguments in layer_inputs.items():
            stop_if_asked(should_stop, STOPPED)
            before, after = (
                partial(arguments, module.get_submodule(layer)) for module in (model, changed)
            )
            key = (
                str(model.get_submodule(layer)),
                _shapes(arguments),
                getattr(model.get_submodule(layer), "shift", None),
            )
            if key not in taken:
                taken[key] = compare_ms(before, after, next(model.parameters()).device, SECONDS)
            results[layer] = Evaluated(output_error(before(), after())[0], *taken[key])
            shown.advance(doing=layer)
    return results


def exact(model: nn.Module) -> float:
    """The tolerance of an exact change, by the dtype of a model's weights."""
    is_half = any(
        weight.is_floating_point() and weight.itemsize < 4 for weight in model.parameters()
    )
    return EXACT_IN_HALF if is_half else EXACT


def _inputs_of(model: nn.Module, layers: Sequence[str], inputs: Inputs) -> dict[str, Inputs]:
    """The inputs of some layers in one run."""
    results: dict[str, Inputs] = {}

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if layer in layers and layer not in results:
            results[layer] = Inputs(args, kwargs).clone()

    inputs = inputs.clone()
    with running(model), watching(model, enter, lambda layer, output: None):
        inputs(model)
    return results


def _shapes(inputs: Inputs) -> tuple[Any, ...]:
    return tuple(
        tuple(leaf.shape) if isinstance(leaf, Tensor) else repr(leaf)
        for leaf in pytree.tree_leaves((inputs.args, inputs.kwargs))
    )
