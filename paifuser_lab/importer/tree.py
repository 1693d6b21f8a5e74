"""Builds a torch module out of operators: an fx graph whose layers are modules of torch.nn.

Each operator is also computed on the meta device for each set of example inputs, which costs no
memory: that gives the shapes of all values, and two sets with other sizes show which sizes vary.
Values that do not depend on the inputs are computed at once.
"""

from __future__ import annotations

import keyword
from collections import Counter
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, fx, nn
from torch.utils import _pytree as pytree

from .limits import MAX_ELEMENTS, MAX_NODES, SHOWN, NotConvertibleError, identifier, short

MAX_COMPUTED = 4 << 30  # bytes of all values that are computed at once
MAX_PARTS = 32  # of a layer's path
NOT_INPUTS = {"self", "torch", "device", "inf", "nan"}  # names in the code that fx writes


@dataclass(frozen=True, eq=False)
class Constant:
    """A value that does not depend on the inputs; a named one is a weight of the file."""

    tensor: Tensor
    name: str = ""


@dataclass(frozen=True, eq=False)
class Traced:
    """A value that depends on the inputs: its node, and a meta tensor for each example."""

    node: fx.Node
    metas: tuple[Tensor, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The shape for the first example."""
        return tuple(self.metas[0].shape)

    @property
    def dtype(self) -> torch.dtype:
        return self.metas[0].dtype


@dataclass(frozen=True, eq=False)
class Size:
    """An integer computed from shapes: a number or its node, and its value for each example."""

    value: Any
    each: tuple[int, ...]


Value = Constant | Traced


class Tree:
    """A module that is being built, operator by operator."""

    def __init__(self, examples: int) -> None:
        self.examples = examples
        self.root = nn.Module()
        self.graph = fx.Graph()
        self.leaves: set[str] = set()
        self.weights: dict[tuple[int, str], nn.Parameter] = {}  # tensor and orientation → parameter
        self.read: dict[int, tuple[fx.Node, Tensor]] = {}  # constants that the graph reads
        self.inputs: set[str] = set()
        self.copies = Counter[str]()  # of a path, beyond the first
        self.calls, self.computed_bytes = 0, 0

    def input(self, name: str, metas: Sequence[Tensor]) -> Traced:
        name = identifier(name)
        while name in self.inputs or name in NOT_INPUTS or keyword.iskeyword(name):
            name += "_"
        self.inputs.add(name)
        return Traced(self.graph.placeholder(name), tuple(metas))

    def call(self, function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
        """Call a function, at once for constants, else in the graph; several results are a list."""
        leaves = pytree.tree_leaves((args, kwargs), is_leaf=_is_value)
        is_constant = not any(
            isinstance(leaf, Traced) or (isinstance(leaf, Size) and isinstance(leaf.value, fx.Node))
            for leaf in leaves
        )
        metas = [
            self._computed(function, *_mapped(_meta(index), (args, kwargs)))
            for index in range(self.examples)
        ]
        if is_constant:
            self._count_bytes(metas[0])
            args, kwargs = _mapped(_real, (args, kwargs))
            results = function(*args, **kwargs)
            if isinstance(results, Tensor):
                return Constant(results)
            return [Constant(result) for result in results]
        args, kwargs = _mapped(self._node, (args, kwargs))
        return self._traced(self.graph.call_function(function, args, kwargs), metas)

    def layer(self, path: str, layer: nn.Module, weights: dict[str, Tensor], x: Value) -> Any:
        """Call a layer of the meta device with these weights; the same tensor is one parameter."""
        layer.eval()
        metas = [self._computed(layer, [_meta(index)(x)], {}) for index in range(self.examples)]
        for name, tensor in weights.items():
            is_buffer = name in layer._buffers
            setattr(layer, name, tensor if is_buffer else self._parameter(tensor))
        _without_meta(layer)
        path = self._add(path, layer)
        return self._traced(self.graph.call_module(path, (self._node(x),)), metas)

    def number(self, value: int) -> Size:
        """An integer that is the same for all examples."""
        return Size(value, (value,) * self.examples)

    def size(self, value: Value, axis: int) -> Size:
        """The size of a dimension: a number if it is the same for all examples."""
        if isinstance(value, Constant):
            return self.number(value.tensor.shape[axis])
        each = tuple(meta.shape[axis] for meta in value.metas)
        if len(set(each)) == 1:
            return Size(each[0], each)
        return Size(self.graph.call_method("size", (value.node, axis)), each)

    def arithmetic(self, function: Callable[[Any, Any], Any], left: Size, right: Size) -> Size:
        each = tuple(int(function(a, b)) for a, b in zip(left.each, right.each, strict=True))
        if len(set(each)) == 1:
            return Size(each[0], each)
        return Size(self.graph.call_function(function, (left.value, right.value)), each)

    def tensor(self, items: Sequence[Size], *, is_scalar: bool = False) -> Value:
        """Sizes as a tensor of integers."""
        values = [item.value for item in items]
        integers = values[0] if is_scalar else values
        if not any(isinstance(value, fx.Node) for value in values):
            return Constant(torch.tensor(integers, dtype=torch.int64))
        node = self.graph.call_function(torch.tensor, (integers,))
        shape = () if is_scalar else (len(items),)
        meta = torch.empty(shape, dtype=torch.int64, device="meta")
        return Traced(node, (meta,) * self.examples)

    def finish(self, output: Any, name: str) -> fx.GraphModule:
        """The module: it returns its output, a value or lists and dicts of values."""
        self.graph.output(_mapped(self._node, output))
        module = fx.GraphModule(self.root, self.graph, class_name=identifier(name))
        module.graph.eliminate_dead_code()
        module.delete_all_unused_submodules()
        module.recompile()
        return module.eval()

    def _parameter(self, tensor: Tensor) -> nn.Parameter:
        """The one parameter of a tensor, whether layers or operators read it."""
        key = id(tensor), str(tensor.dtype)
        if key not in self.weights:
            self.weights[key] = nn.Parameter(tensor, requires_grad=tensor.is_floating_point())
        return self.weights[key]

    def _count_bytes(self, metas: Any) -> None:
        """Refuse to compute more than the limit at once, of all values together."""
        leaves = pytree.tree_leaves(metas)
        self.computed_bytes += sum(leaf.nbytes for leaf in leaves if isinstance(leaf, Tensor))
        if self.computed_bytes > MAX_COMPUTED:
            raise NotConvertibleError(
                f"its constants take more than the limit of {MAX_COMPUTED:,} bytes"
            )

    def _computed(self, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        self.calls += 1
        if self.calls > 2 * MAX_NODES:
            raise NotConvertibleError(f"it has more than {MAX_NODES:,} operators")
        with torch.no_grad(), torch.device("meta"):
            result = function(*args, **kwargs)
        for tensor in pytree.tree_leaves(result):
            if isinstance(tensor, Tensor) and tensor.numel() > MAX_ELEMENTS:
                raise NotConvertibleError(
                    f"it makes a tensor of the shape {short(tuple(tensor.shape))}, past the limit "
                    f"of {MAX_ELEMENTS:,} elements"
                )
        return result

    def _traced(self, node: fx.Node, metas: list[Any]) -> Any:
        if isinstance(metas[0], Tensor):
            return Traced(node, tuple(metas))
        return [
            Traced(
                self.graph.call_function(_item, (node, index)),
                tuple(result[index] for result in metas),
            )
            for index in range(len(metas[0]))
        ]

    def _node(self, value: Any) -> Any:
        if isinstance(value, Traced):
            return value.node
        if not isinstance(value, Constant):
            return _real(value)
        tensor = value.tensor
        if id(tensor) not in self.read:
            is_weight = bool(value.name) and tensor.is_floating_point()
            stored = self._parameter(tensor) if is_weight else tensor
            path = self._add(value.name or "constant", stored)
            self.read[id(tensor)] = self.graph.get_attr(path), tensor
        return self.read[id(tensor)][0]

    def _add(self, path: str, stored: nn.Module | Tensor) -> str:
        """Put a layer or tensor at or near this path, held by a get_attr node; return the path."""
        parts = [_plain(part) for part in path.split(".", MAX_PARTS) if part]
        *parents, leaf = parts or ["value"]
        while any(".".join(parents[: end + 1]) in self.leaves for end in range(len(parents))):
            leaf = f"{parents.pop()}_{leaf}"
        owner = self.root
        for index, parent in enumerate(parents):
            while not isinstance(getattr(owner, parent, None), nn.Module):
                if hasattr(owner, parent):
                    parent = parents[index] = f"{parent}_of"
                else:
                    owner.add_module(parent, nn.Module())
            owner = getattr(owner, parent)
        name, key = leaf, ".".join([*parents, leaf])
        while hasattr(owner, name):
            self.copies[key] += 1
            name = f"{leaf}_{self.copies[key] + 1}"
        if isinstance(stored, nn.Parameter):
            owner.register_parameter(name, stored)
        elif isinstance(stored, nn.Module):
            owner.add_module(name, stored)
            self.leaves.add(".".join([*parents, name]))
        else:
            owner.register_buffer(name, stored)
        return ".".join([*parents, name])


def _item(results: Sequence[Tensor], index: int) -> Tensor:
    return results[index]


def _plain(name: str) -> str:
    """A name that code can have: a number as it is, since fx reads it by getattr."""
    if name.isdecimal() and name.isascii():
        return name[:SHOWN]
    name = identifier(name)
    return f"{name}_" if keyword.iskeyword(name) else name


def _is_value(leaf: Any) -> bool:
    return isinstance(leaf, Constant | Traced | Size)


def _mapped(change: Callable[[Any], Any], parts: Any) -> Any:
    """Lists and dicts with their values changed."""
    return pytree.tree_map(
        lambda leaf: change(leaf) if _is_value(leaf) else leaf, parts, is_leaf=_is_value
    )


def _meta(index: int) -> Callable[[Any], Any]:
    def meta(value: Any) -> Any:
        if isinstance(value, Traced):
            return value.metas[index]
        return value.each[index] if isinstance(value, Size) else value.tensor.to("meta")

    return meta


def _real(value: Any) -> Any:
    return value.value if isinstance(value, Size) else value.tensor


def _without_meta(layer: nn.Module) -> None:
    """Give a buffer that the file does not have its usual value."""
    for name, buffer in list(layer._buffers.items()):
        if buffer is not None and buffer.is_meta:
            setattr(layer, name, torch.zeros(buffer.shape, dtype=buffer.dtype))
