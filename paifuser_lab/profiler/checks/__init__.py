"""The performance checklist, check by check.

run              `checklist`, and the registry CHECKS
subject          the subject of the checks: a training or inference loop, or a workload
findings         all measurements of the subject: watched, timed, evaluated
watch            watch a loop while it runs
trace            the operators that ran, as time spans
model_watch      the models that a loop calls, and their modes
gradient_watch   the gradients of a training step
spans            arithmetic of time spans
judge            compare a value with its limit, as a line of the checklist
loops            checks of loops: data loading, waiting, gradient exchange
gradients        checks of gradients: finite, alive, fp16
inference        checks of inference: eval mode, no graph, the metric
settings         checks of settings: layout, threads, denormals, allocator

A new check is one function of the findings and one line in CHECKS.
"""

from __future__ import annotations

from .run import CHECKS, checklist

__all__ = ["CHECKS", "checklist"]
