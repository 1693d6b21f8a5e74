"""Every allocation of one call and its layer, by torch's profiler with each layer marked.

torch reports each block that its allocators allocate and free, with its address, also inside
operators. Blocks that an operator frees before it ends are its workspace. Not reported: memory that
a library takes from the system itself (oneDNN's scratch, the arena of an exported engine), and
frees of memory from before the call.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._profiler import _EventType
from torch.autograd.profiler import profile, record_function

from ..machine import hardware, threads
from ..memory.snapshots.live import in_order
from ..records import MemoryTimeline
from ..workload import Derived, Workload, running, workload_of
from .recording import MARK, marking

NOT_SEEN = (
    "Memory that a library takes without asking torch (oneDNN's scratch, an exported engine's "
    "arena) is not seen."
)


def memory_timeline(subject: Workload | Derived) -> MemoryTimeline:
    """Record the memory alive at each moment of a call of a model or variant, by layer."""
    work = workload_of(subject)
    # a failing model raises here with its layer's name, and first-call allocations are done
    work.output()
    call = work.inputs.clone()
    with running(work.model), threads(subject.own_threads):
        nodes = _watched(work.model, lambda: call(work.model), work.device)
    return _timeline(work, nodes[0], list(_blocks(nodes, work.device)))


def _timeline(work: Workload, whole: Any, blocks: list[_Block]) -> MemoryTimeline:
    """The timeline; `whole` is the event of the call itself."""
    weights, makers = _weights_by_layer(work.model), {block.layer for block in blocks}
    layers = [name for name, _ in work.model.named_modules() if name in weights or name in makers]
    index_of = {layer: index for index, layer in enumerate(layers)}
    events = sorted(
        (event for block in blocks for event in block.events()), key=lambda event: event[0]
    )
    return MemoryTimeline(
        workload=work.name,
        machine=hardware().name,
        device=work.device.type,
        duration_ms=whole.duration_time_ns / 1e6,
        layers=tuple(layers),
        weights_bytes=tuple(weights.get(layer, 0) for layer in layers),
        time_ms=tuple((node.start_time_ns - whole.start_time_ns) / 1e6 for _, node, _, _ in events),
        change_bytes=tuple(change for _, _, change, _ in events),
        layer_index=tuple(index_of[block.layer] for _, _, _, block in events),
        is_workspace=tuple(block.is_workspace for _, _, _, block in events),
        note=NOT_SEEN,
    )


def _watched(model: nn.Module, call: Callable[[], Any], device: torch.device) -> list[Any]:
    """The profiler's events of a call in order of time, enclosing events first."""
    on_device = "cuda" if device.type == "cuda" else None
    with (
        profile(use_device=on_device, profile_memory=True) as profiled,
        marking(model, lambda layer: MARK + layer),
        record_function(MARK),
    ):
        output = call()
    del output
    ordered = in_order(profiled.kineto_results.experimental_event_tree())
    first = next(index for index, node in enumerate(ordered) if _is_mark(node))
    return ordered[first:]


@dataclass
class _Block:
    """Memory from its allocation to its release; the output is not released within the call."""

    layer: str
    operator_end_ns: int
    allocated: tuple[int, Any]  # the event with its index
    freed: tuple[int, Any] | None = None

    @property
    def is_workspace(self) -> bool:
        return self.freed is not None and self.freed[1].start_time_ns <= self.operator_end_ns

    def events(self) -> Iterator[tuple[int, Any, int, _Block]]:
        """Each event as its index, the event, the change in bytes, and the block."""
        size = self.allocated[1].extra_fields.alloc_size
        yield (*self.allocated, size, self)
        if self.freed is not None:
            yield (*self.freed, -size, self)


def _blocks(nodes: list[Any], device: torch.device) -> Iterator[_Block]:
    """The blocks that a call allocated, each with its innermost layer and that layer's operator."""
    spans: list[Any] = []
    alive: dict[int, _Block] = {}
    for index, node in enumerate(nodes):
        while spans and spans[-1].end_time_ns <= node.start_time_ns:
            spans.pop()
        if node.tag != _EventType.Allocation:
            if node.tag == _EventType.TorchOp and node.start_tid == nodes[0].start_tid:
                spans.append(node)
        elif node.extra_fields.device.type == device.type:
            pointer, size = node.extra_fields.ptr, node.extra_fields.alloc_size
            if size > 0:
                block = alive[pointer] = _Block(*_owner(spans), (index, node))
                yield block
            elif pointer in alive:
                alive.pop(pointer).freed = (index, node)


def _owner(spans: list[Any]) -> tuple[str, int]:
    """The innermost layer, and the end of the operator that it called itself."""
    index = max((index for index, span in enumerate(spans) if _is_mark(span)), default=-1)
    layer = spans[index].name.removeprefix(MARK) if index >= 0 else ""
    return layer, spans[index + 1].end_time_ns if index + 1 < len(spans) else 0


def _is_mark(node: Any) -> bool:
    return str(node.name).startswith(MARK)


def _weights_by_layer(model: nn.Module) -> dict[str, int]:
    """The bytes of parameters and buffers, each counted for the first layer that has it."""
    sizes: dict[str, int] = defaultdict(int)
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        sizes[name.rpartition(".")[0]] += _bytes_of(weight)
    return dict(sizes)


def _bytes_of(weight: Tensor) -> int:
    if weight.layout is torch.sparse_coo:  # nbytes raises for this layout
        return weight._values().nbytes + weight._indices().nbytes
    return weight.nbytes
