"""A row of a comparison: latency, memory, size, FLOPs, error and metric of one contender."""

from __future__ import annotations

from typing import Any

from ..errors import MeasureError, first_line
from ..fusion import packed_bytes
from ..machine import machine_label
from ..measure import (
    MachineWatch,
    Samples,
    flops,
    output_error,
    peak_bytes,
    ratio_of_rounds,
    spread,
    waited_share,
)
from ..model.watch import not_finite
from ..model.weights import parameter_count, weights_bytes, weights_hash
from ..records import Comparison, Measurement, Quality
from ..records.quality import readable_interval, word_for
from ..stopping import keep_when_stopped
from ..workload import Workload, running
from .contenders import Contender, faster_of_each, fastest_of, labels

NO_GAIN = {
    "slower": "slower than the baseline",
    "no difference": "no faster than the baseline, within the interval",
}

POOL_EFFECTS = {
    "": "was not compared",
    "faster": "helps",
    "slower": "costs time: leave it out",
    "no difference": "makes no difference: leave it out",
    "not told": "may help or not, which a busy machine does not show",
}


def rows_so_far(
    work: Workload,
    baselines: list[Contender],
    contenders: list[Contender],
    samples: dict[str, Samples],
    quality: Quality,
) -> Comparison:
    """The latencies of the rounds so far, without memory, error, FLOPs or metric."""
    fastest = fastest_of(baselines, samples)
    rows = []
    for contender in (*baselines, *faster_of_each(contenders, samples)):
        speedup, interval = ratio_of_rounds(samples[fastest.key], samples[contender.key])
        timed = samples[contender.key]
        rows.append(
            Measurement(
                name=contender.name,
                steps=labels(contender.variant),
                threads=contender.threads,
                latency_ms=timed.median_ms,
                best_ms=timed.best_ms,
                spread_ms=timed.spread_ms,
                speedup=speedup,
                speedup_interval=interval,
            )
        )
    return Comparison(
        workload=work.name,
        machine=machine_label(),
        baseline=fastest.name,
        rounds=max(len(sample.rounds_ms) for sample in samples.values()),
        is_interrupted=True,
        quality=quality,
        rows=tuple(rows),
    )


def quality_of(
    work: Workload,
    watch: MachineWatch,
    samples: dict[str, Samples],
    baseline: Contender,
    *,
    with_processes: bool = True,
) -> Quality:
    """How quiet the machine was while these samples were taken."""
    own = samples[baseline.key]
    others = [sample for sample in samples.values() if sample is not own]
    is_cpu = work.device.type == "cpu"
    return watch.quality(
        waited_share=waited_share(list(samples.values())) if is_cpu else None,
        spread=spread(own.rounds_ms),
        sleeps=own.median_sleeps if is_cpu else None,
        intervals=[ratio_of_rounds(own, other)[1] for other in others],
        with_processes=with_processes,
    )


def interruptible_row(*parts: Any, with_metric: bool) -> tuple[Measurement, bool]:
    """A row, and whether it was interrupted; if so, it keeps the timings and has no metric."""
    with keep_when_stopped():
        return _row_or_failure(*parts, with_metric=with_metric), False
    return _row_or_failure(*parts, with_metric=False), True


def _row_or_failure(
    contender: Contender,
    work: Workload,
    reference: Any,
    samples: dict[str, Samples],
    baseline: Contender,
    quality: Quality,
    *,
    with_metric: bool,
) -> Measurement:
    """A row; a variant that fails, e.g. on test data of other shapes, gets a row with the error."""
    try:
        return _row(contender, work, reference, samples, baseline, quality, with_metric=with_metric)
    except Exception as error:
        if contender.variant is None:
            raise
        steps = tuple(step.label for step in contender.variant.recipe.steps)
        return Measurement(
            name=contender.name,
            steps=steps,
            threads=contender.threads,
            failure=f"{type(error).__name__}: {first_line(error)}",
        )


def _row(
    contender: Contender,
    work: Workload,
    reference: Any,
    samples: dict[str, Samples],
    baseline: Contender,
    quality: Quality,
    *,
    with_metric: bool,
) -> Measurement:
    timed = samples[contender.key]
    speedup, interval = ratio_of_rounds(samples[baseline.key], timed)
    with running(contender.model):
        output = work.inputs.clone()(contender.model)
        if contender.variant is not None and (values := not_finite(reference, output)):
            raise MeasureError(
                f"the output holds {values}; choose a wider format, or apply the recipe again."
            )
        relative, largest = output_error(reference, output)
        peak = _peak(contender, work)
    variant = contender.variant
    return Measurement(
        name=contender.name,
        steps=labels(variant),
        threads=contender.threads,
        latency_ms=timed.median_ms,
        best_ms=timed.best_ms,
        spread_ms=timed.spread_ms,
        cpu_ms=timed.median_cpu_ms,
        speedup=speedup,
        speedup_interval=interval,
        peak_bytes=peak,
        size_bytes=weights_bytes(contender.module),
        parameters=parameter_count(contender.module),
        flops=_flops(contender, work),
        relative_error=relative,
        max_error=largest,
        metric=work.evaluate(contender.model) if with_metric else None,
        build_s=variant.build_s if variant else None,
        weights_hash=weights_hash(contender.module),
        page_faults=timed.median_page_faults,
        notes=(
            *(variant.notes if variant else ()),
            *_pool_note(contender, samples, quality),
            *(_no_gain_note(interval, quality) if variant else ()),
        ),
    )


def _peak(contender: Contender, work: Workload) -> int | None:
    """Bytes of the weights, their packed copies and the peak of a call; None for an engine outside
    torch, which does not report it.
    """
    from ..engines.exported import Exported

    if isinstance(contender.model, Exported):
        return None
    inputs = work.inputs.clone()
    return (
        weights_bytes(contender.module)
        + packed_bytes(contender.module)
        + peak_bytes(lambda: inputs(contender.model), work.device)
    )


def _flops(contender: Contender, work: Workload) -> int:
    with running(contender.module):
        return flops(contender.module, lambda module: work.inputs.clone()(module))


def _pool_note(
    contender: Contender, samples: dict[str, Samples], quality: Quality
) -> tuple[str, ...]:
    """A note on whether the variant's memory pool helps: against the same model without it."""
    twin = contender.without_pool
    if twin is None or twin.key not in samples:
        return ()
    without, timed = samples[twin.key], samples[contender.key]
    speedup, interval = ratio_of_rounds(without, timed)
    effect = POOL_EFFECTS[word_for(interval, quality)].format(speedup)
    counts = (without.median_page_faults, timed.median_page_faults)
    faults = "" if None in counts else "; {:,.0f} page faults a call without it, {:,.0f} with it"
    return (
        f"the memory pool {effect} ({speedup:.2f} ×, {readable_interval(interval)})"
        f"{faults.format(*counts)}",
    )


def _no_gain_note(interval: tuple[float, float], quality: Quality) -> tuple[str, ...]:
    """A note on a variant that is not faster than the baseline."""
    note = NO_GAIN.get(word_for(interval, quality))
    return (note,) if note else ()
