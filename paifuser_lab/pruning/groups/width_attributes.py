"""Attributes in which layers store their width, and that have to change with it."""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from typing import Any

from torch import nn

from .grouping import Flags, Structure
from .narrow_attention import narrow

BY_SHAPE: tuple[tuple[type[nn.Module], str, tuple[str, ...]], ...] = (
    (nn.Linear, "weight", ("out_features", "in_features")),
    (nn.Embedding, "weight", ("num_embeddings", "embedding_dim")),
    (nn.PReLU, "weight", ("num_parameters",)),
    (nn.RNNBase, "weight_ih_l0", ("", "input_size")),
    (nn.RNNCellBase, "weight_ih", ("", "input_size")),
    (nn.RNNCellBase, "weight_hh", ("", "hidden_size")),
)
GATES = {"LSTM": 4, "GRU": 3}
BY_VALUE = ("num_features",)  # instance norm sees all channels of a batch as one row


def follow(model: nn.Module, structure: Structure, kept: Flags, left_alone: frozenset[str]) -> None:
    """Update torch's own attributes by name, and those of the user's layers by old value."""
    for layer, named, by_value in _changes(structure, kept):
        module = model.get_submodule(layer)
        for attribute, new in (
            _own_attributes(module, named, by_value)
            if _is_torchs(module)
            else _user_attributes(module, by_value)
        ):
            if _key(layer, attribute) not in left_alone:
                setattr(module, attribute, new)
    follow_shapes(model)


def follow_shapes(model: nn.Module) -> None:
    """Update the attributes of torch's own layers from the shapes of their weights."""
    for module in model.modules():  # some are never called, only read
        if isinstance(module, nn.MultiheadAttention):
            narrow(module)
        elif isinstance(module, nn.RNNBase):
            module.hidden_size = module.get_parameter("weight_ih_l0").shape[0] // GATES.get(
                module.mode, 1
            )
        for kind, weight, attributes in BY_SHAPE:
            if isinstance(module, kind):
                shape = tuple(getattr(module, weight).shape)
                vars(module).update(
                    {name: size for name, size in zip(attributes, shape, strict=True) if name}
                )


def candidates(model: nn.Module, structure: Structure, removed: set[int]) -> tuple[str, ...]:
    """The user's attributes that would be updated; those of repeated layers have one name."""
    keys: dict[str, None] = {}
    for layer, _, by_value in _changes(structure, structure.kept(removed)):
        module = model.get_submodule(layer)
        if not _is_torchs(module):
            keys.update(
                (_key(layer, attribute), None)
                for attribute, _ in _user_attributes(module, by_value)
            )
    return tuple(keys)


def pattern(name: str) -> str:
    """A layer's name without its numbers, equal for repeated layers."""
    return re.sub(r"\d+", "#", name)


def _key(layer: str, attribute: str) -> str:
    return f"{pattern(layer)}.{attribute}"


def _changes(
    structure: Structure, kept: Flags
) -> Iterator[tuple[str, dict[str, tuple[int, int]], dict[int, int]]]:
    """For each layer with a shorter row: (old, new) by attribute, and new by old value."""
    named: dict[str, dict[str, tuple[int, int]]] = defaultdict(dict)
    by_value: dict[str, dict[int, int]] = defaultdict(dict)
    for size in structure.space.sizes.values():
        channel_ids = size.channel_ids.numpy()
        new = int(kept[channel_ids].sum())
        # a row of one class is removed along another dimension
        if new != len(channel_ids) and len(set(structure.classes[channel_ids].tolist())) > 1:
            by_value[size.layer].setdefault(len(size.channel_ids), new)
            if size.attribute:
                named[size.layer][size.attribute] = len(size.channel_ids), new
    for layer in by_value:
        yield layer, named[layer], by_value[layer]


def _own_attributes(
    module: nn.Module, named: dict[str, tuple[int, int]], by_value: dict[int, int]
) -> Iterator[tuple[str, int]]:
    for attribute, (old, new) in named.items():
        if getattr(module, attribute, None) == old:
            yield attribute, new
    for attribute in BY_VALUE:
        value = getattr(module, attribute, None)
        if value in by_value and named.get(attribute, (None,))[0] != value:
            yield attribute, by_value[value]


def _user_attributes(module: nn.Module, by_value: dict[int, int]) -> Iterator[tuple[str, Any]]:
    for attribute, value in list(vars(module).items()):
        if not attribute.startswith("_") and attribute != "training":
            new = _replaced(value, by_value)
            if new is not value and new != value:  # tensors and arrays have no one truth
                yield attribute, new


def _replaced(value: Any, by_value: dict[int, int]) -> Any:
    if isinstance(value, list | tuple) and value and all(type(item) is int for item in value):
        return type(value)(by_value.get(item, item) for item in value)
    return by_value.get(value, value) if type(value) is int else value


def _is_torchs(module: nn.Module) -> bool:
    return type(module).__module__.startswith("torch.nn.")
