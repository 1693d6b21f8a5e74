"""Values that only one layer or sum reads whatever the input: proven from the graphs of the blocks'
own forwards; and the sums that may write over one. Built on torch.fx.

A block whose forward branches on its input cannot be traced, and then nothing in it is proven.
"""

from __future__ import annotations

import operator
from collections import Counter
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx, nn
from torch.nn import functional as F

from ..errors import StepError
from ..fusion.call_trace import Form
from ..fusion.consumers import IDENTITIES, traced
from ..fusion.snapshot import unfused_class
from ..model.dataflow import calls_of
from ..model.layers import BATCH_NORMS, CONVOLUTIONS, TRANSPOSED_CONVOLUTIONS, is_altered
from .lifetimes import Call, Given, Recording, Sum

# activations with a form that writes over its input
ACTIVATIONS: tuple[type[nn.Module], ...] = (
    nn.ReLU,
    nn.ReLU6,
    nn.Hardtanh,
    nn.Hardswish,
    nn.Hardsigmoid,
    nn.SiLU,
    nn.Mish,
    nn.LeakyReLU,
    nn.RReLU,
    nn.ELU,
    nn.CELU,
    nn.SELU,
    nn.Threshold,
)
# layers that always return new memory
MAKERS: tuple[type[nn.Module], ...] = (
    *CONVOLUTIONS,
    *TRANSPOSED_CONVOLUTIONS,
    *BATCH_NORMS,
    nn.Linear,
    nn.LayerNorm,
    nn.GroupNorm,
    nn.MaxPool2d,
    nn.AvgPool2d,
    nn.AdaptiveAvgPool2d,
)
# functions and methods that always return new memory
MAKING: tuple[Any, ...] = (
    operator.add,
    operator.sub,
    operator.mul,
    operator.truediv,
    operator.matmul,
    torch.add,
    torch.sub,
    torch.mul,
    torch.div,
    torch.matmul,
    torch.bmm,
    torch.cat,
    F.conv1d,
    F.conv2d,
    F.conv3d,
    F.linear,
    F.batch_norm,
    F.layer_norm,
    F.group_norm,
    "add",
    "sub",
    "mul",
    "div",
    "matmul",
    "bmm",
)


class SoleReaders:
    """The proofs for one model, in eval mode, with the calls of one run."""

    def __init__(self, model: nn.Module, recording: Recording) -> None:
        self.model = model
        times = Counter(call.layer for call in recording.calls)
        self.calls: dict[str, Call] = {
            call.layer: call for call in recording.calls if times[call.layer] == 1
        }
        self._graphs: dict[str, fx.Graph | str] = {}

    def obstacle(self, layer: str) -> str:
        """Why others may read the input of a layer that was called once, with one tensor; or ''."""
        block = self.calls[layer].caller
        node = self._call_in(block, layer)
        if isinstance(node, str):
            return node
        return self.obstacle_of_value(block, node.all_input_nodes[0], node)

    def obstacle_of_value(self, block: str, value: fx.Node, reader: fx.Node) -> str:
        """Why others than `reader` may read a value of a block's graph, or the memory behind it."""
        given = [*reader.args, *reader.kwargs.values()]
        if set(value.users) != {reader} or sum(argument is value for argument in given) != 1:
            return f"{_named(block)} reads its input elsewhere too"
        if value.op == "placeholder":
            return self._obstacle_around(block, value)
        if value.op == "call_module":
            return self._obstacle_of_part(block, value)
        if value.op != "get_attr" and value.target in MAKING and "out" not in value.kwargs:
            return ""
        return f"its input comes from '{value.name}' in {_named(block)}, which may share memory"

    def _obstacle_around(self, block: str, value: fx.Node) -> str:
        """The same for what a block is called with."""
        call = self.calls.get(block)
        if not block:
            return "its input is an input of the model"
        if call is None or call.form is None or is_altered(self.model.get_submodule(block)):
            return f"{_named(block)}, whose input it reads, has hooks or runs more than once"
        node = self._call_in(call.caller, block)
        if isinstance(node, str):
            return node
        placeholders = [other for other in value.graph.nodes if other.op == "placeholder"]
        given = [
            argument
            for argument in (*node.args, *node.kwargs.values())
            if isinstance(argument, fx.Node)
        ]
        if len(given) != call.form.tensors:
            return f"{_named(block)} is called with more than tensors"
        return self.obstacle_of_value(call.caller, given[placeholders.index(value)], node)

    def _obstacle_of_part(self, block: str, value: fx.Node) -> str:
        """The same for what a part of a block returns."""
        name = f"{block}.{value.target}" if block else str(value.target)
        part = self.model.get_submodule(name)
        if is_altered(part) or "forward" in vars(part):
            return f"its input comes from '{name}', which has hooks or another forward"
        kind = unfused_class(part)
        if kind in IDENTITIES or (kind in ACTIVATIONS and part.inplace):
            return self.obstacle_of_value(block, value.all_input_nodes[0], value)
        if kind in MAKERS or kind in ACTIVATIONS:
            return ""
        graph = self.graph(name)
        if isinstance(graph, str):
            return graph
        output = next(node for node in graph.nodes if node.op == "output")
        return self.obstacle_of_value(name, output.all_input_nodes[0], output)

    def _call_in(self, block: str, part: str) -> fx.Node | str:
        """The only call of a part in a block's graph; or why there is none."""
        graph = self.graph(block)
        if isinstance(graph, str):
            return graph
        target = part.removeprefix(f"{block}.") if block else part
        nodes = calls_of(graph, target)
        if len(nodes) != 1:
            return f"{_named(block)} calls it in a way that cannot be followed"
        return nodes[0]

    def graph(self, block: str) -> fx.Graph | str:
        """The graph of a block's forward; or why there is none."""
        if block not in self._graphs:
            self._graphs[block] = self._traced(block)
        return self._graphs[block]

    def _traced(self, block: str) -> fx.Graph | str:
        call = self.calls.get(block)
        if call is None:
            return f"{_named(block)} runs more than once"
        if call.form is None:
            return f"{_named(block)} is called with more than tensors and plain values"
        try:
            return traced(self.model.get_submodule(block), call.form)
        except StepError as error:
            return f"{_named(block)}: {error}"


def _named(block: str) -> str:
    return f"'{block}'" if block else "the model itself"


SUMS: tuple[Any, ...] = (operator.add, torch.add, "add")


@dataclass(frozen=True)
class BlockSums:
    """The form of a block's call, and the sums in its graph that write over an operand."""

    form: Form
    sums: tuple[tuple[str, int], ...]

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> BlockSums:
        sums = tuple((str(name), int(operand)) for name, operand in data["sums"])
        return cls(Form.of_data(data["form"]), sums)

    @property
    def data(self) -> dict[str, Any]:
        return {"form": self.form.data, "sums": [list(pair) for pair in self.sums]}


@dataclass(frozen=True)
class SumsPlan:
    """The sums that can be in place, by block; how many there are, and why the others cannot."""

    blocks: dict[str, BlockSums]
    total: int
    kept: dict[str, str]  # by the sum's name

    @property
    def count(self) -> int:
        """How many can be in place."""
        return sum(len(block.sums) for block in self.blocks.values())


def plan_sums(recording: Recording, readers: SoleReaders) -> SumsPlan:
    """Decide for each sum in a block's own forward whether it can write over an operand."""
    blocks: dict[str, BlockSums] = {}
    kept: dict[str, str] = {}
    total = 0
    for block, call in readers.calls.items():
        graph = readers.graph(block)
        nodes = [] if isinstance(graph, str) else [node for node in graph.nodes if _is_sum(node)]
        if not nodes or call.form is None:
            continue
        total += len(nodes)
        ran = [done for done in recording.sums if done.layer == block]
        start = f"{block}." if block else ""
        if len(ran) != len(nodes) or is_altered(readers.model.get_submodule(block)):
            kept |= {f"{start}{node.name}": "the block runs it in another way" for node in nodes}
            continue
        found = []
        for node, done in zip(nodes, ran, strict=True):
            reasons = [
                _obstacle(recording, done, operand)
                or readers.obstacle_of_value(block, node.args[operand], node)
                for operand in (0, 1)
            ]
            if "" in reasons:
                found.append((node.name, reasons.index("")))
            else:
                kept[f"{start}{node.name}"] = reasons[0]
        if found:
            blocks[block] = BlockSums(call.form, tuple(found))
    return SumsPlan(blocks, total, kept)


def _is_sum(node: fx.Node) -> bool:
    """Whether it adds two tensors, as far as the graph tells."""
    both = len(node.args) == 2 and all(isinstance(operand, fx.Node) for operand in node.args)
    return both and not node.kwargs and node.op != "call_module" and node.target in SUMS


def _obstacle(recording: Recording, done: Sum, operand: int) -> str:
    """What in the recorded run is in the way of writing over an operand; '' if nothing is."""
    given, other = done.operands[operand], done.operands[1 - operand]
    if given.buffer is not None and given.buffer == other.buffer:
        return "both operands are parts of the same values"
    return obstacle_in_run(recording, given, done.step + 1)


def obstacle_in_run(recording: Recording, given: Given, end: int) -> str:
    """Why the operators before `end` cannot write over a value of the recorded run, or ''."""
    if given.buffer is None:
        return "its input is an input of the model or a weight"
    if not given.is_whole:
        return "its input is a part of other values"
    buffer = recording.buffers[given.buffer]
    if buffer.is_output:
        return "its input is an output of the model"
    if buffer.released is None:
        return "its input is kept after the call"
    if buffer.end >= end:
        return "its input is read later"
    return ""
