"""The performance checklist, check by check.

run              `checklist`, and the registry CHECKS
subject          what is checked: a training or inference loop, or a workload
findings         everything measured of it: watched, timed, evaluated
watch            watches a loop while it runs
trace            the operators that ran, as spans of time
model_watch      which models a loop called, and how
gradient_watch   the gradients of a training step
spans            arithmetic of spans of time
judge            a value against its limit, as a line of the checklist
loops            checks of loops: data loading, waiting, gradient exchange
gradients        checks of gradients: finite, alive, fp16
inference        checks of inference: eval mode, no graph, the metric
settings         checks of settings: layout, threads, denormals, allocator

A new check is one function of the findings and one line in CHECKS.
"""

from __future__ import annotations

from .run import CHECKS, checklist

__all__ = ["CHECKS", "checklist"]
