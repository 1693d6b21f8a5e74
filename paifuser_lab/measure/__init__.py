"""Measure latency in turn, peak memory and output error (`timing`), and FLOPs (`flops`)."""

from __future__ import annotations

from .timing import (
    FEWEST,
    WARM,
    Candidate,
    Clock,
    Samples,
    flops,
    in_turn,
    output_error,
    own_ms,
    peak_bytes,
    ratio_of_rounds,
    rounds_in_turn,
    timed_ms,
)

__all__ = [
    "FEWEST",
    "WARM",
    "Candidate",
    "Clock",
    "Samples",
    "flops",
    "in_turn",
    "output_error",
    "own_ms",
    "peak_bytes",
    "ratio_of_rounds",
    "rounds_in_turn",
    "timed_ms",
]
