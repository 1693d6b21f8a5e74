"""Settings that make the same model faster: memory layout, threads, denormals, the allocator."""

from __future__ import annotations

import json
from typing import Any

import torch

from ...measure import ratio_of_rounds
from ...records import Check, counted, readable_bytes, readable_count
from .findings import AS_IT_IS, CHANNELS_LAST, Findings
from .judge import WORKLOAD_WANTED, judged, percent, unmeasurable

WORTH = 1.10
MOST_DENORMAL = 0.001
MOST_SPLIT = 0.20
LEAST_RESERVED = 256_000_000  # below it the allocator's smallest blocks alone make a large share


def check_memory_layout(found: Findings) -> Check:
    """Whether channels-last would be faster."""
    return _not_timed(found, "memory layout") or _compared(
        found, "memory layout", CHANNELS_LAST, "channels last", {"layout": {}}
    )


def check_threads(found: Findings) -> Check:
    """Whether another number of threads would be faster."""
    if (line := _not_timed(found, "threads")) is not None:
        return line
    best = min(
        (key for key in found.timed if key not in (AS_IT_IS, CHANNELS_LAST)),
        key=lambda key: found.timed[key].median_ms,
    )
    count = int(best.split()[0])
    step = {"backend": {"name": "eager", "threads": count}}
    return _compared(
        found,
        "threads",
        best,
        counted(count, "thread"),
        step,
        now=counted(torch.get_num_threads(), "thread"),
    )


def check_denormals(found: Findings) -> Check:
    """Whether numbers too small for full speed are in weights or between layers."""
    name, weights, outputs = "denormals", found.seen.weights, found.seen.outputs
    if not weights.values + outputs.values:
        why = (
            "the models run on a GPU, which computes with denormals at full speed"
            if found.seen.is_on_device
            else ""
        )
        return unmeasurable(
            name, why or "no model with floating-point values was called in this thread"
        )
    worse = max(weights, outputs, key=lambda one: one.share)
    figure = (
        f"{percent(weights.share)} of {readable_count(weights.values)} weights, "
        f"{percent(outputs.share)} of "
    )
    figure += f"{readable_count(outputs.values)} values between layers"
    where = "".join(
        f"; most in {layer or 'the answer'}"
        for layer, count in worse.by_layer.most_common(1)
        if count
    )
    remedy = (
        "torch.set_flush_denormal(True) takes them for zero; a CPU computes with them many times "
        "slower"
    )
    return judged(name, worse.share, MOST_DENORMAL, figure + where, remedy)


def check_fragmentation(found: Findings) -> Check:
    """Whether the GPU's memory is split into pieces that nothing fits into."""
    name, memory = "memory fragmentation", found.seen.memory
    if memory is None or not found.seen.is_on_device:
        return unmeasurable(
            name,
            "nothing ran on a GPU, and the C library that hands out a CPU's memory does not tell",
        )
    figure = (
        f"of {readable_bytes(memory.reserved)} reserved {readable_bytes(memory.allocated)} were in "
        "use at the fullest moment"
    )
    if memory.reserved < LEAST_RESERVED:
        return judged(name, 0.0, MOST_SPLIT, f"{figure}: too little to matter")
    share = memory.split / memory.reserved
    figure = (
        f"{figure}, and {readable_bytes(memory.split)} ({percent(share)}) lay split between them"
    )
    return judged(
        name,
        share,
        MOST_SPLIT,
        figure,
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and batches of one shape",
    )


def _not_timed(found: Findings, name: str) -> Check | None:
    if found.is_loop:
        return unmeasurable(name, f"timed on a model, not on a loop: {WORKLOAD_WANTED}")
    if name in found.settled:
        return judged(name, 1.0, WORTH, found.settled[name])
    if name in found.reasons or not found.timed:
        return unmeasurable(name, found.reasons.get(name, "stopped before it was timed"))
    return None


def _compared(
    found: Findings,
    name: str,
    other: str,
    label: str,
    step: dict[str, Any],
    *,
    now: str = "as it is",
) -> Check:
    ratio, (low, high) = ratio_of_rounds(found.timed[AS_IT_IS], found.timed[other])
    before, after = found.timed[AS_IT_IS].median_ms, found.timed[other].median_ms
    figure = (
        f"{now} {before:.3g} ms, {label} {after:.3g} ms: {ratio:.2f} × as fast "
        f"({low:.2f}–{high:.2f})"
    )
    if low <= 1 and ratio > WORTH:
        return unmeasurable(name, f"{figure}; the machine was too busy to tell, measure again")
    return judged(
        name, ratio, WORTH, figure, f"take {label}: recipe step {json.dumps(step)}", step=step
    )
