"""A row of a comparison: latency, memory, size, FLOPs, error and metric of one contender."""

from __future__ import annotations

from typing import Any

from ..errors import MeasureError, first_line
from ..fusion import packed_bytes
from ..machine import hardware
from ..measure import Samples, flops, output_error, peak_bytes, ratio_of_rounds
from ..model.watch import not_finite
from ..model.weights import parameter_count, weights_bytes, weights_hash
from ..records import Comparison, Measurement
from ..stopping import keep_when_stopped
from ..workload import Workload, running
from .contenders import Contender, faster_of_each, fastest_of, labels


def rows_so_far(
    work: Workload,
    baselines: list[Contender],
    contenders: list[Contender],
    samples: dict[str, Samples],
) -> Comparison:
    """The latencies of the rounds so far, without what takes time to find out."""
    fastest = fastest_of(baselines, samples)
    rows = []
    for one in (*baselines, *faster_of_each(contenders, samples)):
        speedup, interval = ratio_of_rounds(samples[fastest.key], samples[one.key])
        timed = samples[one.key]
        rows.append(
            Measurement(
                name=one.name,
                steps=labels(one.variant),
                threads=one.threads,
                latency_ms=timed.median_ms,
                best_ms=timed.best_ms,
                spread_ms=timed.spread_ms,
                speedup=speedup,
                speedup_interval=interval,
            )
        )
    return Comparison(
        workload=work.name,
        machine=hardware().label,
        baseline=fastest.name,
        rounds=max(len(one.rounds_ms) for one in samples.values()),
        is_interrupted=True,
        rows=tuple(rows),
    )


def interruptible_row(*parts: Any, with_metric: bool) -> tuple[Measurement, bool]:
    """A row, and whether it was interrupted: what was timed is worth more than the metrics still to
    come.
    """
    with keep_when_stopped():
        return _row_or_failure(*parts, with_metric=with_metric), False
    return _row_or_failure(*parts, with_metric=False), True


def _row_or_failure(
    one: Contender,
    work: Workload,
    reference: Any,
    samples: dict[str, Samples],
    baseline: Contender,
    *,
    with_metric: bool,
) -> Measurement:
    """A variant that fails on the test data, which may come in other shapes, leaves the other rows
    intact.
    """
    try:
        return _row(one, work, reference, samples, baseline, with_metric=with_metric)
    except Exception as error:
        if one.variant is None:
            raise
        steps = tuple(step.label for step in one.variant.recipe.steps)
        return Measurement(
            name=one.name,
            steps=steps,
            threads=one.threads,
            failure=f"{type(error).__name__}: {first_line(error)}",
        )


def _row(
    one: Contender,
    work: Workload,
    reference: Any,
    samples: dict[str, Samples],
    baseline: Contender,
    *,
    with_metric: bool,
) -> Measurement:
    timed = samples[one.key]
    speedup, interval = ratio_of_rounds(samples[baseline.key], timed)
    with running(one.model):
        answer = work.inputs.clone()(one.model)
        if one.variant is not None and (found := not_finite(reference, answer)):
            raise MeasureError(
                f"the output holds {found}; choose a wider format, or apply the recipe again."
            )
        relative, largest = output_error(reference, answer)
        peak = _peak(one, work)
    variant = one.variant
    return Measurement(
        name=one.name,
        steps=labels(variant),
        threads=one.threads,
        latency_ms=timed.median_ms,
        best_ms=timed.best_ms,
        spread_ms=timed.spread_ms,
        cpu_ms=timed.median_cpu_ms,
        speedup=speedup,
        speedup_interval=interval,
        peak_bytes=peak,
        size_bytes=weights_bytes(one.module),
        parameters=parameter_count(one.module),
        flops=_flops(one, work),
        relative_error=relative,
        max_error=largest,
        metric=work.evaluate(one.model) if with_metric else None,
        build_s=variant.build_s if variant else None,
        weights_hash=weights_hash(one.module),
        notes=(
            *(variant.notes if variant else ()),
            *_verdict(interval, is_baseline=variant is None),
        ),
    )


def _peak(one: Contender, work: Workload) -> int | None:
    """Weights, packed ones beside them, and the most that a call holds at once; an engine outside
    torch does not tell.
    """
    from ..engines.exported import Exported

    if isinstance(one.model, Exported):
        return None
    inputs = work.inputs.clone()
    return (
        weights_bytes(one.module)
        + packed_bytes(one.module)
        + peak_bytes(lambda: inputs(one.model), work.device)
    )


def _flops(one: Contender, work: Workload) -> int:
    with running(one.module):
        return flops(one.module, lambda module: work.inputs.clone()(module))


def _verdict(interval: tuple[float, float], *, is_baseline: bool) -> tuple[str, ...]:
    """What did not get faster is said to be so."""
    low, high = interval
    if is_baseline or low > 1:
        return ()
    return (
        ("slower than the baseline",)
        if high < 1
        else ("no faster than the baseline, within the interval",)
    )
