"""Workloads: a model, inputs and, where known, data, loss and metric.

workload    the class, and the workload of a variant
inputs      the arguments of a call, and which are known of a model
infer_inputs  an example input where a model's first layer determines it
checks      what a workload must satisfy, each check an error of its own
batching    the example inputs at another batch size
eval_mode   runs a model in eval mode; flags and buffers are restored
generation  language models: prefill, decode, texts
data        batches, sampling, and errors that name the batch
seeding     sets and restores the random state
"""

from ..machine.turns import QUIET
from .eval_mode import running, running_in_turns
from .infer_inputs import inputs_of_shapes
from .inputs import UNSEEN, Inputs, known_inputs, note_inputs
from .workload import (
    Derived,
    Loss,
    Options,
    Workload,
    changed_buffers,
    outside_inference,
    workload_of,
)

__all__ = [
    "QUIET",
    "UNSEEN",
    "Derived",
    "Inputs",
    "Loss",
    "Options",
    "Workload",
    "changed_buffers",
    "inputs_of_shapes",
    "known_inputs",
    "note_inputs",
    "outside_inference",
    "running",
    "running_in_turns",
    "workload_of",
]
