"""What a memory pool does for the calls of a model: counts, not times."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from statistics import median

from ...machine import hardware, threads
from ...measure import page_faults
from ...records import PoolCalls
from ...stopping import ShouldStop, stop_if_asked
from ...workload import Derived, Workload, running, workload_of
from .make import memory_pool

CALLS = 5
WARM_CALLS = 2  # after which the buffers of a call have their place


def pool_calls(
    subject: Workload | Derived,
    limit: int | str | None = None,
    *,
    calls: int = CALLS,
    should_stop: ShouldStop | None = None,
) -> PoolCalls:
    """Count the page faults of a call of a model or variant without a pool, then within one; a
    variant's own pool is in force on neither side.
    """
    work = workload_of(subject)
    pool = memory_pool(limit, device=work.device, name=work.name)
    own = None if isinstance(subject, Workload) else subject.own_threads
    inputs = work.inputs.clone()

    def call() -> None:
        stop_if_asked(should_stop)
        inputs(work.model)

    with running(work.model), threads(own) if own else nullcontext():
        without = _faults_of(call, calls)
        with pool.held():
            within = _faults_of(call, calls)
            use = pool.statistics
    return PoolCalls(
        workload=work.name,
        machine=hardware().name,
        calls=calls,
        faults_without=without,
        faults_with=within,
        use=use,
    )


def _faults_of(call: Callable[[], None], calls: int) -> float | None:
    """The median page faults of a call, after the first ones; None where nobody counts them."""
    for _ in range(WARM_CALLS):
        call()
    counts = []
    for _ in range(calls):
        before = page_faults()
        call()
        after = page_faults()
        if before is None or after is None:
            return None
        counts.append(after - before)
    return float(median(counts))
