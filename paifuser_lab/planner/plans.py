"""A recipe for this hardware, with a reason for each step.

The candidates are the points of a search's space that keep the output, and with an allowed error
those in faster formats. All of them are built and timed in one comparison, and those that are
nearly the fastest in a second one. The fastest one within the error is taken. A device that is
only named (PAIFUSER_HARDWARE) cannot be timed, so the recipe follows from its figures alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable

from ..arguments import check_error, check_seconds
from ..machine import hardware
from ..machine.datasheets import inductor_obstacle
from ..profiler.alternatives import half_format, is_faster_in
from ..records import Accelerator, Comparison, Hardware, Measurement, readable_ms
from ..variant import Variant
from ..variant.comparison import compare
from ..variant.recipe import Recipe
from ..variant.trial import built
from ..workload import Workload, workload_of
from .ranking import EXACT, TIE_RATIO, WIDE_OPEN
from .space import (
    AS_IT_IS,
    IN_TORCH,
    Choice,
    Point,
    Space,
    allowed_engines,
    folding_of,
    has_images,
)

MIN_INT8_ERROR = 0.01  # int8 is not tried where the allowed error is smaller
BUILDING_SHARE, TIMED_SHARE = 0.5, 0.9  # of the seconds, when each of these ends
FIRST_SHARE = 0.6  # of the time for timing; the rest is for the nearest to the fastest
NEAR, LEADERS = 1.1, 3  # times the latency of the fastest, and how many are timed again at most
FEWEST_CALLS = 14  # of each that a comparison times at least, warm-up included


def plan(
    work: Workload,
    *,
    max_error: float = EXACT,
    seconds: float = 40.0,
    engines: Iterable[str] | None = None,
) -> Recipe:
    """Choose a recipe for this hardware; `recipe.explain()` gives the reasons, `recipe.evidence`
    the measurements.

    `max_error` is the acceptable relative output error: by default that of rounding in fp32, so
    that only exact steps and engines are tried; with 0.02 also bf16, fp16 and int8. `seconds` is
    the time for all of it: what it does not suffice to build is a row of the evidence that says so
    (0 decides from the hardware's figures alone). `engines` are those that may be used (default:
    all available).
    """
    check_seconds(seconds)
    check_error(max_error)
    began = time.perf_counter()
    work = workload_of(work)
    machine = hardware()
    allowed = allowed_engines(engines)
    if seconds <= 0 or machine.source == "published":
        return Recipe(_by_figures(work, machine, max_error, allowed), workload=work.loaded_as)
    space = Space.of(work, machine, allowed, is_exact=max_error <= EXACT)
    formats = {"fp32", *_faster_formats(machine, max_error)}
    points = [point for point in _without_losses(space, allowed) if point.format in formats]
    candidates = [
        Recipe(space.steps(point), limit=WIDE_OPEN) for point in sorted(points, key=_when_built)
    ]
    left = max(0.0, seconds - (time.perf_counter() - began))
    variants, unbuilt = built(work, candidates, BUILDING_SHARE * left)
    until = began + TIMED_SHARE * seconds
    left = max(0.0, until - time.perf_counter())
    measured = compare(work, *variants, seconds=FIRST_SHARE * left, metric=False)
    measured = measured.model_copy(update={"rows": (*measured.rows, *unbuilt)})
    timed = _timed_again(work, variants, measured, max_error, until)
    by_label = {recipe.label: recipe for recipe in candidates}
    best = _best(timed, max_error)
    if best is None:
        return Recipe(workload=work.loaded_as, evidence=measured)
    known = {"fold": space.folding, "pool": space.pool_why}
    steps = []
    for step in by_label[best.name]:
        why = _reason(step.kind, known.get(step.kind, ""), best, measured, timed, max_error)
        steps.append(step.model_copy(update={"why": why}))
    return Recipe(steps, workload=work.loaded_as, evidence=measured)


def _without_losses(space: Space, engines: tuple[str, ...]) -> list[Point]:
    """The points that keep every channel and fix the number of threads, in the engines allowed."""
    has_counts = any(space.axes["threads"])
    return [
        point
        for point in [*([Point()] if space.folding else []), *space.points()]
        if point.keep == 1
        and point.memory != "reuse"
        and (point.threads or not has_counts)
        and ("eager" in engines or point.engine not in (AS_IT_IS, *IN_TORCH))
    ]


def _when_built(point: Point) -> tuple[bool, int]:
    """What compiles comes last, and more threads first: if the seconds end, less is missed."""
    return point.engine == "inductor", -point.threads


def _faster_formats(machine: Hardware, max_error: float) -> list[str]:
    """The formats that are allowed, and that the hardware computes much faster in."""
    if max_error <= EXACT:
        return []
    has_int8 = (
        is_faster_in(machine, "int8") and not machine.accelerators and max_error >= MIN_INT8_ERROR
    )
    return [name for name in (half_format(machine), "int8" if has_int8 else None) if name]


def _by_figures(
    work: Workload, machine: Hardware, max_error: float, engines: tuple[str, ...]
) -> list[Choice]:
    """The recipe for a device that cannot be timed on this machine."""
    folding, target = folding_of(work), machine.target
    steps: list[Choice] = [{"fold": {"why": folding}}] if folding else []
    device = machine.accelerators[0] if machine.accelerators else None
    if has_images(work) and (device is None or device.kind == "cuda"):
        steps.append(
            {"layout": {"why": f"matrix units of {machine.name} read images channels-last"}}
        )
    if max_error > EXACT and (half := half_format(machine)) is not None:
        why = (
            f"{machine.name} computes {(target.rate(half) or 0.0) / 1e3:.3g} TFLOP/s in {half} and "
            f"{target.fp32_gflops / 1e3:.3g} in fp32"
        )
        steps.append({"precision": {"default": half, "why": why}})
    if device is not None:
        steps += _engine_of(device, engines)
    elif "openvino" in engines:
        why = (
            "usually the fastest of the engines on an x86 CPU; not measured, since no time was "
            "given"
        )
        steps.append({"backend": {"name": "openvino", "why": why}})
    return steps


def _engine_of(device: Accelerator, engines: tuple[str, ...]) -> list[Choice]:
    """Inductor where it compiles for the device, else eager with the reason; [] if not allowed."""
    reason = inductor_obstacle(device)
    name = "eager" if reason else "inductor"
    why = reason or f"fuses what lies between the large operators on {device.name}"
    return [{"backend": {"name": name, "why": why}}] if name in engines else []


def _within(measured: Comparison, max_error: float) -> list[Measurement]:
    """The recipes that were measured and keep the error, the fastest first."""
    rows = [row for row in measured.rows if row.steps and row.latency_ms is not None]
    rows = [row for row in rows if (row.relative_error or 0.0) <= max_error]
    return sorted(rows, key=lambda row: row.latency_ms or 0.0)


def _best(measured: Comparison, max_error: float) -> Measurement | None:
    """The fastest row within the error; of equals the one with the fewest steps, eager first."""
    rows = _within(measured, max_error)
    if not rows:
        return None
    fastest = rows[0].latency_ms or 0.0
    if fastest > (measured[measured.baseline].latency_ms or 0.0):
        return None
    equal = [row for row in rows if fastest >= TIE_RATIO * (row.latency_ms or 0.0)]
    return min(equal, key=lambda row: ("eager" not in row.name, len(row.steps), row.latency_ms))


def _timed_again(
    work: Workload, variants: list[Variant], measured: Comparison, max_error: float, until: float
) -> Comparison:
    """The nearest to the fastest timed alone in what is left; without any, what was measured."""
    best, rows = _best(measured, max_error), _within(measured, max_error)
    near = [row for row in rows if (row.latency_ms or 0.0) <= NEAR * (rows[0].latency_ms or 0.0)]
    if best is None or len(near) < 2 or measured.is_interrupted:
        return measured
    leaders = list({row.name: row for row in (best, *near)}.values())[:LEADERS]
    base, left = measured[measured.baseline], until - time.perf_counter()
    if left < FEWEST_CALLS * sum(row.latency_ms or 0.0 for row in (base, *leaders)) / 1e3:
        return measured
    again = [one for one in variants if any(one.recipe.label == row.name for row in leaders)]
    return compare(work, *again, seconds=left, metric=False)


def _reason(
    kind: str, known: str, best: Measurement, first: Comparison, timed: Comparison, max_error: float
) -> str:
    """What was known of a step before, or what it was measured to change."""
    notes = [note for note in best.notes if kind == "pool" and "memory pool" in note]
    if notes:
        return f"{notes[-1]}; estimated before: {known}"
    if known:
        return known
    if kind != "backend":
        count = len(_within(first, max_error))
        return (
            f"part of the fastest of {count} recipes measured here; output error "
            f"{best.relative_error:.1e}"
        )
    base, rows = timed[timed.baseline], _within(timed, max_error)
    runner_up = next((row for row in rows if row.name != best.name), base)
    again = "" if timed is first else f", in {timed.rounds} more rounds of the nearest alone"
    return (
        f"{readable_ms(best.latency_ms)} ms against {readable_ms(base.latency_ms)} ms as it was "
        f"({best.speedup:.2f} ×, output error {best.relative_error:.1e}); next best: "
        f"{runner_up.name} with {readable_ms(runner_up.latency_ms)} ms{again}"
    )
