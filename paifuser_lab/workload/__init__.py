"""What everything works on: a model, inputs and, where known, data, loss and metric.

`workload` holds them, `load` makes one by name, `data` is the one door to batches, `seeding` sets
and restores the random state.
"""

from __future__ import annotations

from .workload import (
    QUIET,
    Derived,
    Inputs,
    Loss,
    Options,
    Workload,
    changed_buffers,
    outside_inference,
    running,
    workload_of,
)

__all__ = [
    "QUIET",
    "Derived",
    "Inputs",
    "Loss",
    "Options",
    "Workload",
    "changed_buffers",
    "outside_inference",
    "running",
    "workload_of",
]
