"""The memory plan of a workload: its buffers packed into one arena, against what torch held."""

from __future__ import annotations

from contextlib import nullcontext

from ..machine import hardware, threads
from ..measure import peak_bytes
from ..records import MemoryPlan, PackedBuffer
from ..workload import Derived, Workload, running, workload_of
from .lifetimes import Recording, record
from .packing import Packing, pack
from .spans import Span

NOTE = (
    "Buffers are what operators return and views of it; workspace inside operators is in what the "
    "allocator held, and in no buffer. Weights and inputs are in neither."
)


def plan_memory(subject: Workload | Derived) -> MemoryPlan:
    """Pack the buffers of one call of a model or variant into one arena, and measure what torch's
    allocator holds for that call.
    """
    work = workload_of(subject)
    own = None if isinstance(subject, Workload) else subject.own_threads
    # a failing model raises here with its layer's name, and first-call allocations are done
    work.output()
    call = work.inputs.clone()
    with running(work.model), threads(own) if own else nullcontext():
        recording = record(work.model, lambda: call(work.model))
        again = work.inputs.clone()
        held = peak_bytes(lambda: again(work.model), work.device)
    spans = [Span(buffer.size_bytes, buffer.begin, buffer.end) for buffer in recording.buffers]
    return _plan(work, recording, pack(spans), held)


def _plan(work: Workload, recording: Recording, packing: Packing, held: int) -> MemoryPlan:
    return MemoryPlan(
        workload=work.name,
        machine=hardware().name,
        device=work.device.type,
        operators=recording.operators,
        buffers=tuple(
            PackedBuffer(
                layer=buffer.layer,
                operator=buffer.operator,
                size_bytes=buffer.size_bytes,
                begin=buffer.begin,
                end=buffer.end,
                offset_bytes=offset,
            )
            for buffer, offset in zip(recording.buffers, packing.offsets, strict=True)
        ),
        method=packing.method,
        best_fit_bytes=packing.best_fit,
        is_optimal=packing.is_optimal,
        referenced_bytes=recording.referenced_bytes,
        held_bytes=held,
        note=NOTE,
    )
