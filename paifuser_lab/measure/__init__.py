"""Measure a model.

timing      latency in turn, peak memory
difference  how far two outputs differ
pages       page faults and resident bytes of this process
watch       how quiet the machine was meanwhile
"""

from .difference import output_error
from .pages import page_faults, peak_resident_bytes, resident_bytes, restart_peak
from .timing import (
    FEWEST,
    WARM,
    Candidate,
    Clock,
    Samples,
    clock_for,
    flops,
    in_turn,
    own_ms,
    peak_bytes,
    ratio_of_rounds,
    rounds_in_turn,
    synchronize,
    timed_ms,
    wait_until_quiet,
)
from .watch import MachineWatch, spread, waited_share

__all__ = [
    "FEWEST",
    "WARM",
    "Candidate",
    "Clock",
    "MachineWatch",
    "Samples",
    "clock_for",
    "flops",
    "in_turn",
    "output_error",
    "own_ms",
    "page_faults",
    "peak_bytes",
    "peak_resident_bytes",
    "ratio_of_rounds",
    "resident_bytes",
    "restart_peak",
    "rounds_in_turn",
    "spread",
    "synchronize",
    "timed_ms",
    "wait_until_quiet",
    "waited_share",
]
