"""A model as a chain of parts that run one after another, each passing one tensor on, as found in a
recording of one run. Built on torch.distributed.pipelining, which traces by torch.export.
"""

from __future__ import annotations

import time
import warnings
from bisect import bisect_right
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from math import prod
from statistics import median
from typing import Any

import torch
from torch import Tensor, nn

from ..errors import ParallelError, first_line
from ..model.copying import copied
from ..model.graph import Graph, observe
from ..records import Profile
from ..workload import Inputs, Loss

ROUNDS = 5  # timed passes of each part


@dataclass(frozen=True)
class Cut:
    """A place where only one tensor passes from what ran before to what follows."""

    layer: str  # begins there
    position: int  # of its first operator
    entry_bytes: int  # of the tensor that passes


@dataclass(frozen=True)
class PartCost:
    """What one part of a chain costs for a microbatch."""

    first_layer: str
    last_layer: str
    forward_ms: float
    backward_ms: float
    parameter_bytes: int
    entry_bytes: int


def cuts_of(model: nn.Module, inputs: Inputs) -> tuple[Graph, list[Cut]]:
    """The operators of a run, and where the model can be cut, in order.

    A cut lies where a layer that runs once begins, so that one tensor alone, and no input of the
    model, is read by what follows.
    """
    model = copied(model).train()
    own_inputs = inputs.clone()
    graph = observe(model, lambda: own_inputs(model))
    operations, weights = graph.operations, set(graph.weights.values())
    made: dict[int, int] = {}
    last_read = dict.fromkeys(graph.outputs, len(operations))
    shapes: dict[int, tuple[int, ...]] = {}
    for index, operation in enumerate(operations):
        for tensor, shape in zip(operation.makes, operation.shapes, strict=True):
            made.setdefault(tensor, index)
            shapes[tensor] = shape
        for tensor in operation.reads:
            last_read[tensor] = max(index, last_read.get(tensor, 0))
    inputs_end = max(
        (last for tensor, last in last_read.items() if tensor not in made.keys() | weights),
        default=0,
    )
    itemsize = next((weight.element_size() for weight in model.parameters()), 4)
    cuts = []
    for position, layer in _beginnings(graph).items():
        passing = [
            tensor for tensor, at in made.items() if at < position <= last_read.get(tensor, -1)
        ]
        if len(passing) == 1 and inputs_end < position and passing[0] not in graph.outputs:
            cuts.append(Cut(layer, position, itemsize * prod(shapes[passing[0]])))
    return graph, cuts


def _beginnings(graph: Graph) -> dict[int, str]:
    """The first operator of every layer that runs once → the outermost layer that begins there."""
    first: dict[str, int] = {}
    for index, operation in enumerate(graph.operations):
        names = operation.layer.split(".") if operation.layer else []
        for depth in range(1, len(names) + 1):
            first.setdefault(".".join(names[:depth]), index)
    begins: dict[int, str] = {}
    for layer, index in first.items():
        if graph.entries[layer] == 1 and (index not in begins or len(layer) < len(begins[index])):
            begins[index] = layer
    return dict(sorted(begins.items()))


class Chain:
    """The parts of a model, on a copy of it, each a module that takes what the one before gives.

    `inputs` are those of a microbatch; the parts take the same shapes later.
    """

    def __init__(self, model: nn.Module, inputs: Inputs, *, name: str) -> None:
        from torch.distributed.pipelining import SplitPoint, pipeline

        if inputs.kwargs:
            raise ParallelError(
                f"{name} takes inputs by keyword ({', '.join(inputs.kwargs)}); a pipeline gives "
                "its first stage positional ones: wrap the model so that it takes them."
            )
        self.inputs, self.name = inputs, name
        self.graph, self.cuts = cuts_of(model, inputs)
        self.model = copied(model).train()
        try:
            with warnings.catch_warnings():
                # torch's own tracing uses what it deprecates
                warnings.filterwarnings("ignore", category=FutureWarning)
                pipe = pipeline(
                    self.model,
                    inputs.args,
                    split_spec={cut.layer: SplitPoint.BEGINNING for cut in self.cuts},
                )
        except Exception as error:  # tracing runs the user's code, which raises what it likes
            raise ParallelError(
                f"{name} cannot be cut into stages, as torch.export cannot trace it "
                f"({type(error).__name__}: {first_line(error.__cause__ or error)})."
            ) from error
        self.parts: list[nn.Module] = list(pipe.split_gm.children())
        if len(self.parts) != len(self.cuts) + 1:
            raise ParallelError(
                f"{name} was cut at {len(self.cuts)} layers into {len(self.parts)} parts; a layer "
                "runs in another order when it is traced."
            )

    def __len__(self) -> int:
        return len(self.parts)

    def costs(self, loss: Loss, target: Any, *, profile: Profile | None = None) -> list[PartCost]:
        """What each part costs: by a profile of the layers, or else timed part by part."""
        times = self._timed(loss, target) if profile is None else self._profiled(profile)
        ends = [cut.position for cut in self.cuts] + [len(self.graph.operations)]
        begins = [0, *ends[:-1]]
        entries = [0, *(cut.entry_bytes for cut in self.cuts)]
        return [
            PartCost(
                first_layer=self._layer(begin, 1),
                last_layer=self._layer(end - 1, -1),
                forward_ms=forward,
                backward_ms=backward,
                parameter_bytes=sum(weight.nbytes for weight in part.parameters()),
                entry_bytes=entry,
            )
            for part, (forward, backward), begin, end, entry in zip(
                self.parts, times, begins, ends, entries, strict=True
            )
        ]

    def _layer(self, position: int, step: int) -> str:
        """The next layer, or the one before, that has an operator of its own."""
        operations = self.graph.operations
        while 0 <= position < len(operations) and not operations[position].layer:
            position += step
        return operations[position].layer if 0 <= position < len(operations) else ""

    def _profiled(self, profile: Profile) -> list[tuple[float, float]]:
        """A layer's time is shared among the parts as its operators are."""
        rows = {row.layer: row for row in profile.layers}
        counts = Counter(operation.layer for operation in self.graph.operations)
        if not counts.keys() & rows.keys() - {""}:
            raise ParallelError(
                f"the profile of {profile.workload} has no layer of {self.name}; give lab.profile "
                "of this workload."
            )
        times = [[0.0, 0.0] for _ in self.parts]
        positions = [cut.position for cut in self.cuts]
        for index, operation in enumerate(self.graph.operations):
            row = rows.get(operation.layer)
            if row is not None:
                part = bisect_right(positions, index)
                forward = row.self_ms / counts[operation.layer]
                known = row.backward_self_ms
                backward = 2 * forward if known is None else known / counts[operation.layer]
                times[part][0] += forward
                times[part][1] += backward
        return [(forward, backward) for forward, backward in times]

    def _timed(self, loss: Loss, target: Any) -> list[tuple[float, float]]:
        samples: list[list[tuple[float, float]]] = [[] for _ in self.parts]
        whole = nn.ModuleList(self.parts)
        before = {name: value.detach().clone() for name, value in whole.named_buffers()}
        for _ in range(ROUNDS + 1):
            for part, sample in enumerate(self._pass(loss, target)):
                samples[part].append(sample)
        for name, value in whole.named_buffers():
            value.copy_(before[name])
        for weight in whole.parameters():
            weight.grad = None
        return [
            (median(f for f, _ in part[1:]), median(b for _, b in part[1:])) for part in samples
        ]

    def _pass(self, loss: Loss, target: Any) -> list[tuple[float, float]]:
        """The ms of one forward and of one backward pass through each part."""
        values: Sequence[Any] = self.inputs.clone().args
        entered: list[Tensor | None] = []
        given: list[Tensor] = []
        forward = []
        for part in self.parts:
            begin = time.perf_counter()
            output = part(*values)
            forward.append(1e3 * (time.perf_counter() - begin))
            entered.append(values[0] if given else None)
            given.append(output)
            values = (output.detach().requires_grad_(output.is_floating_point()),)
        backward = []
        gradient: Tensor | None = None
        for index in reversed(range(len(self.parts))):
            begin = time.perf_counter()
            output = loss(given[index], target) if gradient is None else given[index]
            torch.autograd.backward(output, gradient)
            backward.append(1e3 * (time.perf_counter() - begin))
            source = entered[index]
            gradient = None if source is None else source.grad
        return list(zip(forward, reversed(backward), strict=True))
