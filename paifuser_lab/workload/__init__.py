"""What everything works on: a model, inputs and, where known, data, loss and metric.

workload    the class, its inputs, and what counts as one
checks      what a workload cannot be, each an error
eval_mode   a model run for a result, flags and buffers put back
load        a workload by name, from the zoo or a function
trust       which functions named in a file are called without being trusted
data        batches, sampling, and the batch that is wrong, by index
seeding     the random state, set and restored
"""

from __future__ import annotations

from .eval_mode import QUIET, running
from .workload import (
    Derived,
    Inputs,
    Loss,
    Options,
    Workload,
    changed_buffers,
    outside_inference,
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
