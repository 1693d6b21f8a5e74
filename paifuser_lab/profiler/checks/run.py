"""A performance checklist of the user's own training or inference."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from ...arguments import check_seconds
from ...records import Check, Checklist
from ...workload import Derived, Workload
from .findings import Findings, find_out
from .gradients import check_finite_gradients, check_gradients_in_fp16, check_live_gradients
from .inference import check_accuracy, check_eval_mode, check_graph_in_inference
from .loops import (
    check_beside_the_model,
    check_data_loading,
    check_gradient_exchange,
    check_host_waits,
)
from .settings import check_denormals, check_fragmentation, check_memory_layout, check_threads
from .subject import subject_of

SECONDS = 20.0

# In the order in which they are read; steps that mend come in an order that a recipe takes (a
# backend is last).
CHECKS: tuple[Callable[[Findings], Check], ...] = (
    check_data_loading,
    check_beside_the_model,
    check_host_waits,
    check_gradient_exchange,
    check_finite_gradients,
    check_live_gradients,
    check_gradients_in_fp16,
    check_eval_mode,
    check_graph_in_inference,
    check_accuracy,
    check_denormals,
    check_fragmentation,
    check_memory_layout,
    check_threads,
)


def checklist(
    loop_or_work: Workload | Derived | Callable[[], Any],
    *,
    baseline_metric: float | None = None,
    seconds: float = SECONDS,
) -> Checklist:
    """Check my training or inference for what usually costs speed, with a remedy for each finding.

    A callable without arguments runs your own loop, a few steps of it, once and watched in this
    thread; whatever it raises is raised on. A workload or a variant is called a few times and
    timed, for `seconds`, with other settings in turn. Each line passed, failed with its remedy, or
    says why it cannot be measured here; an interrupt keeps what was seen until then.
    """
    check_seconds(seconds)
    subject = subject_of(loop_or_work, baseline_metric)
    found = find_out(subject, seconds=seconds)
    return Checklist(
        subject=subject.name,
        lines=tuple(check(found) for check in CHECKS),
        is_interrupted=found.is_interrupted,
    )
