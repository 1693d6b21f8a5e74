"""Sums of two tensors that can write over one of them, where nobody reads it afterwards.

As for activations, two proofs have to agree: the recorded run, and the graph of the block. The sums
of the run and those of the graph are matched in order; where their numbers differ, none is.
"""

from __future__ import annotations

import operator
from dataclasses import dataclass
from typing import Any

import torch
from torch import fx

from ..fusion.call_trace import Form
from ..model.layers import is_altered
from .lifetimes import Given, Recording, Sum
from .sole_readers import SoleReaders

SUMS: tuple[Any, ...] = (operator.add, torch.add, "add")


@dataclass(frozen=True)
class BlockSums:
    """The form of a block's call, and the sums in its graph that write over an operand."""

    form: Form
    sums: tuple[tuple[str, int], ...]

    @classmethod
    def of_data(cls, data: dict[str, Any]) -> BlockSums:
        """Sums from plain data."""
        sums = tuple((str(name), int(operand)) for name, operand in data["sums"])
        return cls(Form.of_data(data["form"]), sums)

    @property
    def data(self) -> dict[str, Any]:
        """The sums as plain data."""
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
        nodes = [node for node in graph.nodes if _is_sum(node)] if graph is not None else []
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
    """Why a value of the recorded run cannot be written over by the operators before `end`; '' if
    nothing is in the way.
    """
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
