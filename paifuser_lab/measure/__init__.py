"""Measuring: `timing` takes turns and forms ratios within a round; `flops` counts operations."""

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
