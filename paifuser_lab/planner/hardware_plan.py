"""A recipe for this hardware, with a reason for each step.

The hardware's figures select the candidates; these are built and timed in turn, and the fastest one
within the allowed error is taken. A device that is only named (PAIFUSER_HARDWARE) cannot be timed,
so the recipe follows from its figures alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from ..arguments import check_error, check_seconds
from ..comparison import compare
from ..engines import available_engines
from ..errors import WorkloadError
from ..machine import hardware
from ..machine.datasheets import inductor_obstacle
from ..recipe import Recipe
from ..records import Accelerator, Comparison, Hardware, Measurement
from ..workload import Workload, workload_of
from .candidates import (
    WIDE_OPEN,
    Choice,
    folding_of,
    half_format,
    has_images,
    plan_candidates,
)
from .ranking import EXACT, TIE_RATIO


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
    the time for measuring (building comes on top; 0 decides from the hardware's figures alone),
    `engines` are those that may be used (default: all available).
    """
    check_seconds(seconds)
    check_error(max_error)
    work = workload_of(work)
    machine = hardware()
    allowed = allowed_engines(engines)
    folding = folding_of(work)
    if seconds <= 0 or machine.source == "published":
        return Recipe(
            [*folding, *_by_figures(work, machine, max_error, allowed)], workload=work.loaded_as
        )
    candidates = [
        Recipe([*folding, *rest], limit=WIDE_OPEN)
        for rest in plan_candidates(work, machine, max_error, allowed)
    ]
    measured = compare(work, *candidates, seconds=seconds, metric=False)
    by_label = {recipe.label: recipe for recipe in candidates}
    best = _best(measured, by_label, max_error)
    if best is None:
        return Recipe(workload=work.loaded_as, evidence=measured)
    steps = [
        _with_reason(step, reason) for step, reason in _reasons(by_label[best.name], best, measured)
    ]
    return Recipe(steps, workload=work.loaded_as, evidence=measured)


def allowed_engines(engines: Iterable[str] | None) -> tuple[str, ...]:
    """The engines that may be used: all that are available, or those named."""
    available = available_engines()
    names = available if engines is None else tuple(engines)
    for name in names:
        if name not in available:
            raise WorkloadError(
                f"engine '{name}' is not available; choose from {', '.join(available)}."
            )
    return names


def _by_figures(
    work: Workload, machine: Hardware, max_error: float, engines: tuple[str, ...]
) -> list[Choice]:
    """The recipe for a device that cannot be timed on this machine."""
    steps: list[Choice] = []
    target = machine.target
    device = machine.accelerators[0] if machine.accelerators else None
    if has_images(work) and (device is None or device.kind == "cuda"):
        steps.append(
            {"layout": {"why": f"matrix units of {machine.name} read images channels-last"}}
        )
    if (half := half_format(machine, max_error)) is not None:
        rate = (target.bf16_gflops if half == "bf16" else target.fp16_gflops) or 0.0
        why = (
            f"{machine.name} computes {rate / 1e3:.3g} TFLOP/s in {half} and "
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


def _best(measured: Comparison, recipes: dict[str, Recipe], max_error: float) -> Measurement | None:
    """The fastest row within the error; of equals the one with the fewest steps, eager first."""
    rows = [row for row in measured.rows if row.name in recipes and row.speedup is not None]
    rows = [row for row in rows if (row.relative_error or 0.0) <= max_error]
    if not rows:
        return None
    fastest = min(row.latency_ms or 0.0 for row in rows)
    if fastest > (measured[measured.baseline].latency_ms or 0.0):
        return None
    equal = [row for row in rows if fastest >= TIE_RATIO * (row.latency_ms or 0.0)]
    return min(equal, key=lambda row: ("eager" not in row.name, len(row.steps), row.latency_ms))


def _reasons(recipe: Recipe, best: Measurement, measured: Comparison) -> Iterable[tuple[Any, str]]:
    for step in recipe.steps:
        notes = [note for note in best.notes if step.kind == "pool" and "memory pool" in note]
        estimate = f"; estimated before: {step.why}" if step.why else ""
        reason = step.why or _reason(step.kind, best, measured)
        yield step, notes[-1] + estimate if notes else reason


def _reason(kind: str, best: Measurement, measured: Comparison) -> str:
    base = measured[measured.baseline]
    if kind != "backend":
        count = sum(bool(row.steps) for row in measured.rows)
        return (
            f"part of the fastest of {count} recipes measured here; output error "
            f"{best.relative_error:.1e}"
        )
    others = [
        row
        for row in measured.rows
        if row.latency_ms is not None and row.name not in (best.name, base.name)
    ]
    runner_up = min(others, key=lambda row: row.latency_ms or 0.0, default=base)
    return (
        f"{best.latency_ms:.3g} ms against {base.latency_ms:.3g} ms as it was "
        f"({best.speedup:.2f} ×, output error {best.relative_error:.1e}); next best: "
        f"{runner_up.name} with {runner_up.latency_ms:.3g} ms"
    )


def _with_reason(step: Any, reason: str) -> Any:
    return step.model_copy(update={"why": reason})
