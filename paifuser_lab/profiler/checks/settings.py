"""Checks of settings: memory layout, threads, the allocator."""

from __future__ import annotations

import json
from typing import Any

import torch

from ...measure import ratio_of_rounds
from ...records import counted, readable_bytes
from ...records.quality import readable_interval
from ...records.text import three_figures
from .findings import AS_IT_IS, CHANNELS_LAST, WORKLOAD_HINT, Findings, Judged, percent

MIN_SPEEDUP = 1.10
MAX_SPLIT = 0.20
MIN_RESERVED = 256_000_000  # below it the allocator's smallest blocks make a large share


def check_memory_layout(findings: Findings) -> Judged | str:
    """Channels-last would not be faster."""
    return _not_timed(findings, "memory layout") or _compared(
        findings, CHANNELS_LAST, "channels last", {"layout": {}}
    )


def check_threads(findings: Findings) -> Judged | str:
    """Another number of threads would not be faster."""
    if (line := _not_timed(findings, "threads")) is not None:
        return line
    best = min(
        (key for key in findings.timed if key not in (AS_IT_IS, CHANNELS_LAST)),
        key=lambda key: findings.timed[key].median_ms,
    )
    count = int(best)
    step = {"backend": {"name": "eager", "threads": count}}
    now = counted(torch.get_num_threads(), "thread")
    return _compared(findings, best, counted(count, "thread"), step, now=now)


def check_fragmentation(findings: Findings) -> Judged | str:
    """The GPU's memory is not split into pieces that are too small to use."""
    memory = findings.run.memory
    if memory is None or not findings.run.is_on_device:
        return "nothing ran on a GPU, and the C library that hands out a CPU's memory does not tell"
    figure = (
        f"of {readable_bytes(memory.reserved)} reserved {readable_bytes(memory.allocated)} were in "
        "use at the fullest moment"
    )
    if memory.reserved < MIN_RESERVED:
        return Judged(0.0, MAX_SPLIT, f"{figure}: too little to matter")
    share = memory.split / memory.reserved
    figure = (
        f"{figure}, and {readable_bytes(memory.split)} ({percent(share)}) lay split between them"
    )
    return Judged(
        share,
        MAX_SPLIT,
        figure,
        "PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True, and batches of one shape",
    )


def _not_timed(findings: Findings, name: str) -> Judged | str | None:
    if findings.is_loop:
        return f"timed on a model, not on a loop: {WORKLOAD_HINT}"
    if name in findings.settled:
        return Judged(1.0, MIN_SPEEDUP, findings.settled[name])
    if name in findings.reasons or not findings.timed:
        return findings.reasons.get(name, "stopped before it was timed")
    return None


def _compared(
    findings: Findings,
    other: str,
    label: str,
    step: dict[str, Any],
    *,
    now: str = "as it is",
) -> Judged | str:
    ratio, interval = ratio_of_rounds(findings.timed[AS_IT_IS], findings.timed[other])
    before, after = findings.timed[AS_IT_IS].median_ms, findings.timed[other].median_ms
    figure = (
        f"{now} {three_figures(before)} ms, {label} {three_figures(after)} ms: "
        f"{ratio:.2f} × as fast ({readable_interval(interval)})"
    )
    if interval[0] <= 1 and ratio > MIN_SPEEDUP:
        return f"{figure}; the machine was too busy to tell, measure again"
    return Judged(
        ratio, MIN_SPEEDUP, figure, f"take {label}: recipe step {json.dumps(step)}", step=step
    )
