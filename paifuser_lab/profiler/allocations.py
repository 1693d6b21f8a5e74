"""Every allocation of one call and the layer that made it: torch's own profiler, with each layer
marked.

torch reports each block that its allocators give out and take back, with its address, those inside
operators too. What an operator gives back before it ends is its workspace. Memory that a library
takes from the system by itself, as oneDNN's scratch or the arena of an exported engine, is reported
by nobody; nor is what the call gives back of what was there before it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from contextlib import nullcontext
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn
from torch._C._profiler import _EventType
from torch.autograd.profiler import profile, record_function

from ..machine import hardware, threads
from ..model.watch import watching
from ..records import MemoryTimeline
from ..workload import Derived, Workload, running, workload_of
from .recording import MARK

NOT_SEEN = (
    "Memory that a library takes without asking torch (oneDNN's scratch, an exported engine's "
    "arena) is not seen."
)


def memory_timeline(subject: Workload | Derived) -> MemoryTimeline:
    """See what one call of a model, or of a variant of it, has alive at each moment, and which
    layer took it.
    """
    work = workload_of(subject)
    own = None if isinstance(subject, Workload) else subject.own_threads
    # it fails here with its layer's name; and what is made once, at the first call, is made
    work.output()
    call = work.inputs.clone()
    with running(work.model), threads(own) if own else nullcontext():
        nodes = _watched(work.model, lambda: call(work.model), work.device)
    return _timeline(work, nodes[0], list(_blocks(nodes, work.device)))


def _timeline(work: Workload, whole: Any, blocks: list[_Block]) -> MemoryTimeline:
    """`whole` is the call itself."""
    weights, makers = _weights_by_layer(work.model), {block.layer for block in blocks}
    layers = [name for name, _ in work.model.named_modules() if name in weights or name in makers]
    place = {layer: index for index, layer in enumerate(layers)}
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
        layer_index=tuple(place[block.layer] for _, _, _, block in events),
        is_workspace=tuple(block.is_workspace for _, _, _, block in events),
        note=NOT_SEEN,
    )


def _watched(model: nn.Module, call: Callable[[], Any], device: torch.device) -> list[Any]:
    """What the profiler saw of a call, in order of time, whatever encloses before what it
    encloses.
    """
    marks: list[Any] = []

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        marks.append(record_function(MARK + layer))
        marks[-1].__enter__()

    def leave(layer: str, output: Any) -> None:
        marks.pop().__exit__(None, None, None)

    on_device = "cuda" if device.type == "cuda" else None
    with (
        profile(use_device=on_device, profile_memory=True) as profiled,
        watching(model, enter, leave),
        record_function(MARK),
    ):
        kept = call()
    del kept
    nodes = _flat(profiled.kineto_results.experimental_event_tree())
    ordered = sorted(nodes, key=lambda node: (node.start_time_ns, -node.end_time_ns))
    first = next(place for place, node in enumerate(ordered) if _is_mark(node))
    return ordered[first:]


def _flat(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        yield node
        yield from _flat(node.children)


@dataclass
class _Block:
    """Memory from when it is given out to when it is taken back; at the end of the call, the answer
    is not.
    """

    layer: str
    operator_end_ns: int
    given: tuple[int, Any]  # the event's place in time
    taken: tuple[int, Any] | None = None

    @property
    def is_workspace(self) -> bool:
        return self.taken is not None and self.taken[1].start_time_ns <= self.operator_end_ns

    def events(self) -> Iterator[tuple[int, Any, int, _Block]]:
        """Each as its place, what was seen, how many bytes it changes, and the block."""
        size = self.given[1].extra_fields.alloc_size
        yield (*self.given, size, self)
        if self.taken is not None:
            yield (*self.taken, -size, self)


def _blocks(nodes: list[Any], device: torch.device) -> Iterator[_Block]:
    """The blocks that a call took, each with the innermost layer that ran and the operator that it
    called.
    """
    spans: list[Any] = []
    alive: dict[int, _Block] = {}
    for place, node in enumerate(nodes):
        while spans and spans[-1].end_time_ns <= node.start_time_ns:
            spans.pop()
        if node.tag != _EventType.Allocation:
            spans += (
                [node]
                if node.tag == _EventType.TorchOp and node.start_tid == nodes[0].start_tid
                else []
            )
        elif node.extra_fields.device.type == device.type:
            pointer, size = node.extra_fields.ptr, node.extra_fields.alloc_size
            if size > 0:
                block = alive[pointer] = _Block(*_whose(spans), (place, node))
                yield block
            elif pointer in alive:
                alive.pop(pointer).taken = (place, node)


def _whose(spans: list[Any]) -> tuple[str, int]:
    """The innermost layer, and when the operator that it called itself ends."""
    place = max((place for place, span in enumerate(spans) if _is_mark(span)), default=-1)
    layer = spans[place].name.removeprefix(MARK) if place >= 0 else ""
    return layer, spans[place + 1].end_time_ns if place + 1 < len(spans) else 0


def _is_mark(node: Any) -> bool:
    return str(node.name).startswith(MARK)


def _weights_by_layer(model: nn.Module) -> dict[str, int]:
    """Parameters and buffers, each with the first layer that has it."""
    found: dict[str, int] = defaultdict(int)
    for name, weight in (*model.named_parameters(), *model.named_buffers()):
        found[name.rpartition(".")[0]] += _bytes_of(weight)
    return dict(found)


def _bytes_of(weight: Tensor) -> int:
    if weight.layout is torch.sparse_coo:  # torch leaves it to the asker what to count
        return weight._values().nbytes + weight._indices().nbytes
    return weight.nbytes
