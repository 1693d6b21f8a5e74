"""The performance checklist of a training or inference loop, or of a workload.

findings    the subject, and all measurements of it: watched, timed, evaluated
watch       watch a loop while it runs: its models, their modes, their gradients
trace       the operators that ran, as time spans, and their arithmetic
loops       checks of loops: data loading, waiting, gradient exchange
gradients   checks of gradients: finite, alive, fp16
inference   checks of inference: eval mode, no graph, the metric
settings    checks of settings: layout, threads, allocator

A new check is one function of the findings, which judges a value or says why there is none, and
one line in CHECKS.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...arguments import check_seconds
from ...records import Checklist
from ...workload import Derived, Workload
from .findings import Findings, Judged, line_of, measure_subject, subject_of
from .gradients import check_finite_gradients, check_gradients_in_fp16, check_live_gradients
from .inference import check_accuracy, check_eval_mode, check_graph_in_inference
from .loops import (
    check_beside_the_model,
    check_data_loading,
    check_gradient_exchange,
    check_host_waits,
)
from .settings import check_fragmentation, check_memory_layout, check_threads

__all__ = ["CHECKS", "checklist"]

SECONDS = 20.0

# In the order of the checklist; steps that remedy come in an order that a recipe accepts (a backend
# is last).
CHECKS: dict[str, Callable[[Findings], Judged | str]] = {
    "data loading": check_data_loading,
    "beside the model": check_beside_the_model,
    "host synchronisations": check_host_waits,
    "gradient synchronisation": check_gradient_exchange,
    "finite gradients": check_finite_gradients,
    "live gradients": check_live_gradients,
    "gradients in fp16": check_gradients_in_fp16,
    "eval mode": check_eval_mode,
    "gradients in inference": check_graph_in_inference,
    "accuracy": check_accuracy,
    "memory fragmentation": check_fragmentation,
    "memory layout": check_memory_layout,
    "threads": check_threads,
}


def checklist(
    loop_or_work: Workload | Derived | Callable[[], Any],
    *,
    baseline_metric: float | None = None,
    seconds: float = SECONDS,
) -> Checklist:
    """Check a training or inference for common performance problems, with a remedy for each.

    A callable without arguments runs a few steps of your own loop; it is called once and watched in
    this thread, and its exceptions propagate. A workload or a variant is called a few times and
    timed, for `seconds`, with other settings in turn. Each line passed, failed with its remedy, or
    gives the reason why it cannot be measured; an interrupt keeps the results so far.
    """
    check_seconds(seconds)
    subject = subject_of(loop_or_work, baseline_metric)
    findings = measure_subject(subject, seconds=seconds)
    return Checklist(
        subject=subject.name,
        lines=tuple(line_of(name, check(findings)) for name, check in CHECKS.items()),
        is_interrupted=findings.is_interrupted,
    )
