"""The table of ONNX operators that have a counterpart in torch, and what each is given."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

import onnx
import torch

from ...limits import NotConvertibleError
from ...tree import Constant, Size, Traced, Tree, Value

MAX_SIZES = 64  # a longer list of integers is a tensor


@dataclass(frozen=True, eq=False)
class Sizes:
    """A list of integers, or one, some of which were computed from the shapes of the inputs."""

    items: tuple[Size, ...]
    is_scalar: bool = False


@dataclass(frozen=True, eq=False)
class Call:
    """A node of a file with the values that it reads."""

    node: onnx.NodeProto
    inputs: tuple[Constant | Traced | Sizes | None, ...]
    tree: Tree
    opset: int
    path: str  # where a layer of the node goes in the module
    sole_readers: dict[str, onnx.NodeProto]  # the one node that reads a value
    constant: Callable[[str], Constant | None]
    joined: dict[str, str]  # output of a node that is computed here → output of this node

    @cached_property
    def attributes(self) -> dict[str, Any]:
        return {entry.name: onnx.helper.get_attribute_value(entry) for entry in self.node.attribute}

    def attribute(self, name: str, default: Any = None) -> Any:
        """An attribute; text as str."""
        value = self.attributes.get(name, default)
        return value.decode(errors="replace") if isinstance(value, bytes) else value

    def has(self, index: int) -> bool:
        """Whether an optional input is given."""
        return index < len(self.inputs) and self.inputs[index] is not None

    def value(self, index: int) -> Value:
        """An input as a tensor."""
        value = self.inputs[index] if index < len(self.inputs) else None
        if value is None:
            raise NotConvertibleError(f"its input {index} is missing")
        if isinstance(value, Sizes):
            return self.tree.tensor(value.items, is_scalar=value.is_scalar)
        return value

    def operand(self, index: int) -> Any:
        """An input of an elementwise operator: a Python number where it is one constant number."""
        value = self.value(index)
        if isinstance(value, Constant) and value.tensor.ndim == 0:
            return value.tensor.item()
        return value

    def weight(self, index: int) -> Constant:
        """An input that is a constant."""
        value = self.value(index)
        if not isinstance(value, Constant):
            raise NotConvertibleError(f"its input {index} is computed and not a weight of the file")
        return value

    def shape(self, index: int) -> tuple[int, ...]:
        return shape_of(self.value(index))

    def rank(self, index: int) -> int:
        return len(self.shape(index))

    def known(self, index: int) -> Sizes | None:
        """An input as integers; None if it is a computed tensor, or no short list of integers."""
        value = self.inputs[index]
        if isinstance(value, Sizes):
            return value
        if not isinstance(value, Constant):
            return None
        tensor = value.tensor
        if tensor.ndim > 1 or tensor.numel() > MAX_SIZES or tensor.is_floating_point():
            return None
        items = tuple(self.tree.number(int(item)) for item in tensor.reshape(-1).tolist())
        return Sizes(items, not tensor.ndim)

    def sizes(self, index: int) -> list[Size]:
        """An input as a list of integers, which may be computed from shapes."""
        sizes = self.known(index)
        if sizes is None:
            raise NotConvertibleError(f"its input {index} is an array of computed integers")
        return list(sizes.items)

    def integers(self, index: int, attribute: str = "") -> list[int] | None:
        """Fixed integers: an input, or the attribute that older versions have; None if neither."""
        if attribute and attribute in self.attributes:
            value = self.attributes[attribute]
            return (
                [int(item) for item in value] if isinstance(value, list | tuple) else [int(value)]
            )
        if not self.has(index):
            return None
        items = [item.value for item in self.sizes(index)]
        if not all(isinstance(item, int) for item in items):
            raise NotConvertibleError(f"its input {index} depends on the shapes of the inputs")
        return items

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        return self.tree.call(function, *args, **kwargs)

    def flag(self, name: str, allowed: Sequence[Any], default: Any) -> Any:
        """An attribute of which only some values have a counterpart."""
        value = self.attribute(name, default)
        if value not in allowed:
            raise NotConvertibleError(f"its {name}={value!r} has no counterpart in torch")
        return value


Rule = Callable[[Call], Any]
OPERATORS: dict[str, Rule] = {}
SIZE_RULES: dict[str, Callable[[Call], Sizes | None]] = {}


def operator(*names: str, table: dict[str, Any] = OPERATORS) -> Callable[[Rule], Rule]:
    """Register the counterpart of some operators in a table."""

    def register(function: Rule) -> Rule:
        table.update(dict.fromkeys(names, function))
        return function

    return register


def shape_of(value: Value) -> tuple[int, ...]:
    """The shape of a value, for the first example."""
    return tuple(value.tensor.shape) if isinstance(value, Constant) else value.shape


def is_open(value: Value, axis: int) -> bool:
    """Whether a size differs between the examples."""
    return isinstance(value, Traced) and len({meta.shape[axis] for meta in value.metas}) > 1


def dtype_of(value: Value) -> torch.dtype:
    return value.tensor.dtype if isinstance(value, Constant) else value.dtype
