"""A recipe for this hardware, with a reason for each step.

The candidates are the points of a search's space that keep the output, and with an allowed error
those in faster formats. All of them are built and timed in a few rounds, and those that are nearly
the fastest in as many as there is time for. The fastest one within the error is taken. A device
that is only named (PAIFUSER_HARDWARE) cannot be timed, so the recipe follows from its figures
alone.
"""

from __future__ import annotations

import time
from collections.abc import Iterable
from itertools import accumulate

from ..arguments import check_error, check_seconds
from ..engines.threads import faster_threads
from ..machine import hardware
from ..machine.datasheets import inductor_obstacle
from ..profiler.alternatives import half_format, is_faster_in
from ..records import Accelerator, Comparison, Hardware, Measurement, readable_ms
from ..records.text import three_figures
from ..variant import Variant
from ..variant.comparison import compare, screen
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
BUILDING_SHARE, TIMED_SHARE = 0.65, 0.9  # of the seconds, when each of these ends
SCREENING = 2  # rounds of all
NEAR, LEADERS = 1.15, 4  # times the latency of the fastest, and how many are timed longer at most
FEWEST_CALLS = 16  # of each that a comparison makes at least: to warm up, in 5 rounds, for its row


def plan(
    work: Workload,
    *,
    max_error: float = EXACT,
    seconds: float = 60.0,
    engines: Iterable[str] | None = None,
) -> Recipe:
    """Choose a recipe for this hardware; `recipe.explain()` gives the reasons, `recipe.evidence`
    the measurements.

    `max_error` is the acceptable relative output error: by default that of rounding in fp32, so
    that only exact steps and engines are tried; with 0.02 also bf16, fp16 and int8. `seconds` is
    the time for all of it: what it does not suffice to build is a row of the evidence that says so;
    what compiles is begun where 20 of the first 65 % are left (0 decides from the hardware's
    figures alone). `engines` are those that may be used (default: all available).
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
    count = faster_threads(work)
    points.sort(key=lambda point: _when_built(point, count))
    candidates = [Recipe(space.steps(point), limit=WIDE_OPEN) for point in points]
    left = began + BUILDING_SHARE * seconds - time.perf_counter()
    variants, unbuilt = built(work, candidates, left)
    screened = screen(work, variants, SCREENING)
    timed = _timed_longer(work, variants, screened, max_error, began + TIMED_SHARE * seconds)
    names = {row.name for row in timed.rows}
    others = [row for row in screened.rows if row.name not in names]
    evidence = timed.model_copy(update={"rows": (*timed.rows, *others, *unbuilt)})
    by_label = {recipe.label: recipe for recipe in candidates}
    best = _best(timed, max_error)
    if best is None:
        return Recipe(workload=work.loaded_as, evidence=evidence)
    known = {"fold": space.folding, "pool": space.pool_why}
    steps = []
    for step in by_label[best.name]:
        why = _reason(step.kind, known.get(step.kind, ""), best, evidence, max_error)
        steps.append(step.model_copy(update={"why": why}))
    return Recipe(steps, workload=work.loaded_as, evidence=evidence)


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


def _when_built(point: Point, count: int) -> tuple[bool, bool, bool]:
    """If the seconds end, this is missed: first the number of threads that is slower for the
    unchanged model, then memory pools, then what compiles.
    """
    is_other_count = point.threads not in (0, count)
    return is_other_count, point.memory != AS_IT_IS, point.engine == "inductor"


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
        rate = three_figures((target.rate(half) or 0.0) / 1e3)
        why = (
            f"{machine.name} computes {rate} TFLOP/s in {half} and "
            f"{three_figures(target.fp32_gflops / 1e3)} in fp32"
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
    if not rows or (rows[0].latency_ms or 0.0) > (measured[measured.baseline].latency_ms or 0.0):
        return None
    return _simplest(rows)


def _simplest(rows: list[Measurement]) -> Measurement:
    """Of the rows as fast as the first, the one with the fewest steps, eager first."""
    fastest = rows[0].latency_ms or 0.0
    equal = [row for row in rows if fastest >= TIE_RATIO * (row.latency_ms or 0.0)]
    return min(equal, key=lambda row: ("eager" not in row.name, len(row.steps), row.latency_ms))


def _timed_longer(
    work: Workload, variants: list[Variant], screened: Comparison, max_error: float, until: float
) -> Comparison:
    """The nearest to the fastest timed alone until then; without the time, what was screened."""
    rows = _within(screened, max_error)
    if not rows or screened.is_interrupted:
        return screened
    near = [row for row in rows if (row.latency_ms or 0.0) <= NEAR * (rows[0].latency_ms or 0.0)]
    # after the one that would be taken now those that few rounds show to be the fastest
    leaders = list({row.name: row for row in (_simplest(near), *near)}.values())[:LEADERS]
    left = until - time.perf_counter()
    calls_s = accumulate(
        FEWEST_CALLS * (row.latency_ms or 0.0) / 1e3
        for row in (screened[screened.baseline], *leaders)
    )
    names = {
        row.name for row, needed in zip(leaders, list(calls_s)[1:], strict=True) if needed < left
    }
    longer = [one for one in variants if one.recipe.label in names]
    return compare(work, *longer, seconds=left, metric=False) if longer else screened


def _reason(
    kind: str, known: str, best: Measurement, evidence: Comparison, max_error: float
) -> str:
    """What was known of a step before, or what it was measured to change."""
    notes = [note for note in best.notes if kind == "pool" and "memory pool" in note]
    if notes:
        return f"{notes[-1]}; estimated before: {known}"
    if known:
        return known
    rows = _within(evidence, max_error)
    if kind != "backend":
        return (
            f"part of the fastest of {len(rows)} recipes measured here; output error "
            f"{best.relative_error:.1e}"
        )
    base = evidence[evidence.baseline]
    others = (row for row in rows if row.name != best.name)
    # what was timed as long as the best comes before what few rounds ruled out
    runner_up = min(others, key=lambda row: row.rounds is not None, default=base)
    return (
        f"{readable_ms(best.latency_ms)} ms against {readable_ms(base.latency_ms)} ms as it was "
        f"({best.speedup:.2f} ×, output error {best.relative_error:.1e}); next best: "
        f"{runner_up.name} with {readable_ms(runner_up.latency_ms)} ms"
    )
