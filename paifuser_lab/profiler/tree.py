"""Layers as a tree of their paths: their order, their sums, and what their modules say."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from ..model.weights import parameter_count


def in_tree_order(layers: Iterable[str]) -> list[str]:
    """The layers in the given order of their first run, each after its containers, also those that
    did not run.
    """
    names: dict[str, None] = {"": None}
    for layer in layers:
        parts = layer.split(".")
        for count in range(1, len(parts) + 1):
            names[".".join(parts[:count])] = None
    return sorted(names, key=_by_first(list(names)))


def _by_first(names: list[str]) -> Any:
    """Sort key of tree order: children follow their layer, siblings are in order of first run."""
    index_of = {name: index for index, name in enumerate(names)}

    def key(name: str) -> tuple[int, ...]:
        parts = name.split(".") if name else []
        return tuple(index_of[".".join(parts[:count])] for count in range(1, len(parts) + 1))

    return key


def rolled_up(values: dict[str, Any]) -> dict[str, Any]:
    """Each layer's value added to every container above it."""
    total: dict[str, Any] = defaultdict(int)
    for layer, value in values.items():
        total[""] = total[""] + value
        parts = layer.split(".") if layer else []
        for count in range(1, len(parts) + 1):
            above = ".".join(parts[:count])
            total[above] = total[above] + value
    return total


def weights_by_layer(model: nn.Module) -> dict[str, int]:
    """The number of each layer's own weights; a shared one counts where it comes first."""
    counted: set[int] = set()
    return {
        name: parameter_count(module, own=True, counted=counted)
        for name, module in model.named_modules()
    }


def weight_shape(module: nn.Module) -> tuple[int, ...]:
    """The shape of a layer's weight; empty if it has none."""
    weight = getattr(module, "weight", None)
    return tuple(weight.shape) if isinstance(weight, Tensor) else ()


def detail_of(module: nn.Module) -> str:
    """The options of a layer without children, by `extra_repr`."""
    return "" if any(module.children()) else module.extra_repr()
