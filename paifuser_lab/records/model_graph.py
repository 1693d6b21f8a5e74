"""A model as a graph: operators of one call, tensors between them, with blocks folded."""

from __future__ import annotations

from collections.abc import Collection
from functools import cached_property
from typing import NamedTuple

from .record import AboutWorkload, Record
from .text import counted, readable_bytes

MOST_SHOWN = 24  # nodes of a graph that nobody has unfolded yet


class GraphOperator(Record):
    """An operator of the call, or the model's input or output."""

    name: str
    layer: str  # that ran it itself


class GraphTensor(Record):
    """A tensor that one operator makes and another reads, both by their number."""

    source: int
    target: int
    name: int  # of the tensor: the same for each of its readers
    shape: tuple[int, ...] = ()
    bytes: int = 0

    @property
    def text(self) -> str:
        """'1×64×56×56'; 'number' for a tensor of one."""
        return "×".join(map(str, self.shape)) or "number"


class GraphNode(NamedTuple):
    """What is drawn as one box: an operator, or all operators of a layer."""

    key: str
    layer: str
    label: str
    kind: str
    operators: tuple[int, ...]
    can_unfold: bool


class GraphEdge(NamedTuple):
    """The tensors from one node to another, by their keys."""

    source: str
    target: str
    tensors: tuple[GraphTensor, ...]

    @property
    def text(self) -> str:
        """The shape of its tensor, or how many there are."""
        return self.tensors[0].text if len(self.tensors) == 1 else f"{len(self.tensors)} tensors"

    @property
    def bytes(self) -> int:
        """The size of its tensors together."""
        return sum(tensor.bytes for tensor in self.tensors)


class ModelGraph(Record):
    """What ran in one call of a model, in order, and what flowed between."""

    workload: AboutWorkload
    operators: tuple[GraphOperator, ...]
    tensors: tuple[GraphTensor, ...]
    classes: dict[str, str]  # layer → its class, in the order of the code
    note: str = ""  # why these are the layers alone, where the call could not be recorded

    @property
    def title(self) -> str:
        """The workload and the size of its graph, in a line."""
        ends = 0 if self.note else 2  # the call's input and output
        operators = counted(len(self.operators) - ends, "operator")
        moved = readable_bytes(sum({one.name: one.bytes for one in self.tensors}.values()))
        return f"{self.workload}: {operators}, {moved} between them"

    @cached_property
    def blocks(self) -> dict[str, tuple[str, ...]]:
        """Layer → the layers around it that can be folded, from outside, and itself. A block whose
        only part is another one is not told apart from it.
        """
        parts: dict[str, set[str | int]] = {}
        for number, operator in enumerate(self.operators):
            prefixes = _prefixes(operator.layer)
            inner: tuple[str | int, ...] = (*prefixes[1:], number)
            for above, below in zip(prefixes, inner, strict=True):
                parts.setdefault(above, set()).add(below)
        known: dict[str, tuple[str, ...]] = {}
        for operator in self.operators:
            kept: list[str] = []
            above = ""
            for prefix in _prefixes(operator.layer)[1:]:
                is_only = len(parts[above]) == 1 and bool(kept)
                if is_only and self.is_leaf(prefix):
                    kept[-1] = prefix
                elif not is_only:
                    kept.append(prefix)
                above = prefix
            known[operator.layer] = tuple(kept)
        return known

    @cached_property
    def _parents(self) -> frozenset[str]:
        return frozenset(layer.rpartition(".")[0] for layer in self.classes if layer)

    def is_leaf(self, layer: str) -> bool:
        """Whether a layer has no layers inside: it is always one node."""
        return layer not in self._parents

    def key_of(self, number: int, unfolded: Collection[str]) -> str:
        """The key of the node that an operator is in."""
        layer = self.operators[number].layer
        around = self.blocks[layer]
        folded = (block for block in around if block not in unfolded or self.is_leaf(block))
        return next(folded, f"{layer}#{number}")

    def nodes(self, unfolded: Collection[str]) -> tuple[GraphNode, ...]:
        """The nodes while some blocks are unfolded; each operator is in exactly one."""
        inside: dict[str, list[int]] = {}
        for number in range(len(self.operators)):
            inside.setdefault(self.key_of(number, unfolded), []).append(number)
        return tuple(self._node(key, tuple(numbers)) for key, numbers in inside.items())

    def _node(self, key: str, numbers: tuple[int, ...]) -> GraphNode:
        operator = self.operators[numbers[0]]
        if key not in self.blocks[operator.layer]:
            return GraphNode(key, operator.layer, operator.name, "operator", numbers, False)
        kind = self.classes.get(key, "")
        return GraphNode(key, key, _label(key), kind, numbers, not self.is_leaf(key))

    def edges(self, unfolded: Collection[str]) -> tuple[GraphEdge, ...]:
        """What flows between these nodes; a tensor that several parts of one read counts once."""
        between: dict[tuple[str, str], dict[int, GraphTensor]] = {}
        for tensor in self.tensors:
            ends = self.key_of(tensor.source, unfolded), self.key_of(tensor.target, unfolded)
            if ends[0] != ends[1]:
                between.setdefault(ends, {})[tensor.name] = tensor
        return tuple(GraphEdge(*ends, tuple(found.values())) for ends, found in between.items())

    def unfolded_at_first(self, most: int = MOST_SHOWN) -> frozenset[str]:
        """The blocks unfolded at first: those of the largest classes, while few nodes are shown."""
        unfolded: frozenset[str] = frozenset()
        refused: set[str] = set()
        while True:
            sizes: dict[str, int] = {}
            alike: dict[str, set[str]] = {}
            for node in self.nodes(unfolded):
                if node.can_unfold and node.kind not in refused:
                    sizes[node.kind] = sizes.get(node.kind, 0) + len(node.operators)
                    alike.setdefault(node.kind, set()).add(node.key)
            if not sizes:
                return unfolded
            kind = max(sizes, key=lambda name: sizes[name])
            if len(self.nodes(unfolded | alike[kind])) <= most:
                unfolded |= alike[kind]
            else:
                refused.add(kind)


def _prefixes(layer: str) -> tuple[str, ...]:
    """'a.b' → '', 'a', 'a.b'."""
    parts = layer.split(".") if layer else []
    return ("", *(".".join(parts[: count + 1]) for count in range(len(parts))))


def _label(layer: str) -> str:
    """The end of a path that tells something: 'layer1', 'stages.0.1', 'up.0.conv'."""
    parts = layer.split(".")
    start = len(parts) - 1
    while start and (parts[start].isdigit() or parts[start - 1].isdigit()):
        start -= 1
    return ".".join(parts[start:])
