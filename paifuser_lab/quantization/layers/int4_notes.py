"""What is to be known of layers in int4-weights: which of them multiply integers, which make their
weights, and what bf16 adds.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ...records import counted
from ...workload import Workload, running
from .weights_only import FEW_ROWS, WeightsOnly

MOST_NAMES = 3


def int4_notes(work: Workload, model: nn.Module, chosen: Collection[str]) -> list[str]:
    """Sentences about those of the chosen layers that are in int4, by a call on the example
    inputs.
    """
    modules = {name: model.get_submodule(name) for name in chosen}
    layers = {
        name: one
        for name, one in modules.items()
        if isinstance(one, WeightsOnly) and one.in_nibbles
    }
    if not layers:
        return []
    with _watched(layers) as few:
        answer = _answer(work, model)
    reasons: dict[str, list[str]] = {}
    for name in layers.keys() - few:
        reasons.setdefault(_why_not(layers[name]), []).append(name)
    notes = [
        f"{_named(sorted(names))} in int4: weights made at each call, since {why}"
        for why, names in reasons.items()
    ]
    if few:
        error = _relative(answer, _answer_of_weights(work, model, layers))
        few_rows = (
            f"layer_operands as packed integers in bf16, as in every call of at most {FEW_ROWS[4]} "
            "rows without gradients"
        )
        notes.insert(
            0, f"{_named(sorted(few))} in int4: {few_rows}; bf16 moves the output by {error:.1e}"
        )
    return notes


@contextmanager
def _watched(layers: Mapping[str, WeightsOnly]) -> Iterator[set[str]]:
    """The layers that multiply integers in each of their calls of this while."""
    few, many = set[str](), set[str]()

    def seen(name: str, layer: WeightsOnly, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
        x = args[0] if args else next(iter(kwargs.values()))
        (few if layer.has_few_rows(x) else many).add(name)

    hooks = [
        layer.register_forward_pre_hook(
            lambda one, args, kwargs, name=name: seen(name, one, args, kwargs), with_kwargs=True
        )
        for name, layer in layers.items()
    ]
    try:
        yield few
    finally:
        few -= many
        for hook in hooks:
            hook.remove()


def _why_not(layer: WeightsOnly) -> str:
    if not layer.is_linear:
        return f"torch has no packed operator for layers of kind {layer.kind}"
    if layer.values.device.type != "cpu":
        return f"torch's packed operator here is the CPU's, and this is {layer.values.device}"
    return (
        f"the example inputs give a linear layer more than {FEW_ROWS[4]} rows, or numbers that are "
        "not to be rounded to bf16"
    )


def _named(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:MOST_NAMES])
    return f"{counted(len(names), 'layer')} ({shown}{', …' if len(names) > MOST_NAMES else ''})"


def _answer(work: Workload, model: nn.Module) -> list[Tensor]:
    with running(model):
        leaves = pytree.tree_leaves(work.inputs.clone()(model))
    return [
        leaf.float() for leaf in leaves if isinstance(leaf, Tensor) and leaf.is_floating_point()
    ]


def _answer_of_weights(
    work: Workload, model: nn.Module, layers: Mapping[str, WeightsOnly]
) -> list[Tensor]:
    """The output with every weight made."""
    before = {name: layer.few_rows for name, layer in layers.items()}
    try:
        for layer in layers.values():
            layer.few_rows = 0
        return _answer(work, model)
    finally:
        for name, layer in layers.items():
            layer.few_rows = before[name]


def _relative(answer: list[Tensor], exact: list[Tensor]) -> float:
    pairs = list(zip(answer, exact, strict=True))
    difference = sum(float((one - other).square().sum()) for one, other in pairs)
    size = sum(float(other.square().sum()) for _, other in pairs)
    return math.sqrt(difference / (size or 1.0))
