"""A recipe for this hardware, with a reason for each step.

The hardware's figures select the candidates; these are built and timed in turn, and the fastest one
within the allowed error is taken. A device that is only named (PAIFUSER_HARDWARE) cannot be timed,
so the recipe follows from its figures alone.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from torch import nn

from ..arguments import check_seconds
from ..comparison import compare
from ..engines import available_engines
from ..errors import WorkloadError
from ..machine import hardware, thread_choices
from ..machine.datasheets import inductor_obstacle
from ..model.fold import plan_fold
from ..model.graph import observe
from ..quantization import saturates
from ..recipe import Recipe
from ..records import Accelerator, Comparison, Hardware, Measurement
from ..workload import Workload, running, workload_of

MIN_SPEEDUP = 1.3  # a format is tried when the hardware computes this much faster in it
MIN_INT8_ERROR = 0.01  # int8 is not tried where the allowed error is smaller
TIE_RATIO = 0.97  # candidates within this ratio of the fastest are equal; the simplest is taken

Choice = dict[str, dict[str, Any]]


def plan(
    work: Workload,
    *,
    max_error: float = 0.02,
    seconds: float = 40.0,
    engines: Iterable[str] | None = None,
) -> Recipe:
    """Choose a recipe for this hardware; `recipe.explain()` gives the reasons, `recipe.evidence`
    the measurements.

    `max_error` is the acceptable relative output error, `seconds` the time for measuring (building
    comes on top; 0 decides from the hardware's figures alone), `engines` the engines that may be
    used (default: all available).
    """
    check_seconds(seconds)
    work = workload_of(work)
    machine = hardware()
    allowed = _allowed(engines)
    folding = _fold(work)
    if seconds <= 0 or machine.source == "published":
        return Recipe(
            [*folding, *_by_figures(work, machine, max_error, allowed)], workload=work.name
        )
    candidates = [
        Recipe([*folding, *rest]) for rest in _candidates(work, machine, max_error, allowed)
    ]
    measured = compare(work, *candidates, seconds=seconds, metric=False)
    by_label = {recipe.label: recipe for recipe in candidates}
    best = _best(measured, by_label, max_error)
    if best is None:
        return Recipe(workload=work.name, evidence=measured)
    steps = [
        _with_reason(step, reason) for step, reason in _reasons(by_label[best.name], best, measured)
    ]
    return Recipe(steps, workload=work.name, evidence=measured)


def _allowed(engines: Iterable[str] | None) -> tuple[str, ...]:
    available = available_engines()
    names = available if engines is None else tuple(engines)
    for name in names:
        if name not in available:
            raise WorkloadError(
                f"engine '{name}' is not available; choose from {', '.join(available)}."
            )
    return names


def _fold(work: Workload) -> list[Choice]:
    """Fold batch-norms wherever there are any: folding is exact and costs nothing at run time."""
    with running(work.model):
        pairs = plan_fold(
            work.model, observe(work.model, lambda: work.inputs.clone()(work.model))
        ).pairs
    if not pairs:
        return []
    return [
        {
            "fold": {
                "why": (
                    f"{len(pairs)} batch-norm layers follow a convolution or linear layer; folded, "
                    "each costs nothing"
                )
            }
        }
    ]


def _candidates(
    work: Workload, machine: Hardware, max_error: float, engines: tuple[str, ...]
) -> list[list[Choice]]:
    """The candidates: each engine with each sensible number of threads, in each format that pays
    off.
    """
    formats = [
        None,
        *(name for name in (_half_format(machine, max_error), _int8(machine, max_error)) if name),
    ]
    layouts: list[list[Choice]] = [[], [{"layout": {}}]] if _has_images(work) else [[]]
    counts = thread_choices() if work.device.type == "cpu" else thread_choices()[-1:]
    candidates: list[list[Choice]] = []
    for count in counts:
        for name in formats:
            numbers: list[Choice] = [{"precision": {"default": name}}] if name else []
            backends = _backends(
                work,
                count,
                in_half=name in ("bf16", "fp16"),
                in_bf16="bf16" in formats and name != "bf16",
            )
            eager = [[*numbers, *layout] for layout in layouts]
            eager += [[*eager[-1], {"fuse": {}}]] if name is None else []
            candidates += [
                [*steps, _backend("eager", count)] for steps in eager if "eager" in engines
            ]
            candidates += [
                [*numbers, backend] for backend in backends if backend["backend"]["name"] in engines
            ]
    return candidates


def _backends(work: Workload, count: int, *, in_half: bool, in_bf16: bool) -> list[Choice]:
    """The engines other than eager; ONNX Runtime has no 16-bit convolutions on a CPU, and spinning
    threads matter from two threads on.
    """
    is_cpu = work.device.type == "cpu"
    sleeping, spinning = _backend("onnxruntime", count), _backend("onnxruntime", count, spin=True)
    exported = [
        *([sleeping] if not in_half else []),
        *([spinning] if not in_half and count > 1 else []),
        _backend("openvino", count),
        *([_backend("openvino", count, bf16=True)] if in_bf16 else []),
    ]
    return [*(exported if is_cpu else []), _backend("inductor", count, freeze=is_cpu)]


def _backend(name: str, count: int, **options: bool) -> Choice:
    return {
        "backend": {"name": name, "threads": count}
        | {option: True for option, is_on in options.items() if is_on}
    }


def _half_format(machine: Hardware, max_error: float) -> str | None:
    """The 16-bit format in which this hardware is much faster than in fp32; None where there is
    none or the output must be exact.
    """
    target = machine.target
    if max_error < 1e-3:
        return None
    for name, rate in (("bf16", target.bf16_gflops), ("fp16", target.fp16_gflops)):
        if rate is not None and rate > MIN_SPEEDUP * target.fp32_gflops:
            return name
    return None


def _int8(machine: Hardware, max_error: float) -> str | None:
    """int8 where the hardware computes much faster in it with results that do not saturate, and the
    allowed error permits it.
    """
    rate = machine.target.int8_gops
    is_faster = rate is not None and rate > MIN_SPEEDUP * machine.target.fp32_gflops
    is_allowed = is_faster and not machine.accelerators and max_error >= MIN_INT8_ERROR
    return "int8" if is_allowed and not saturates() else None


def _has_images(work: Workload) -> bool:
    return any(tensor.ndim == 4 for tensor in work.inputs.tensors) and any(
        isinstance(module, nn.Conv2d) for module in work.model.modules()
    )


def _by_figures(
    work: Workload, machine: Hardware, max_error: float, engines: tuple[str, ...]
) -> list[Choice]:
    """The recipe for a device that cannot be timed on this machine."""
    steps: list[Choice] = []
    target = machine.target
    device = machine.accelerators[0] if machine.accelerators else None
    if _has_images(work) and (device is None or device.kind == "cuda"):
        steps.append(
            {"layout": {"why": f"matrix units of {machine.name} read images channels-last"}}
        )
    if (half := _half_format(machine, max_error)) is not None:
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
    """Inductor for a device that it compiles for, else eager PyTorch with the reason; nothing where
    that engine is not allowed.
    """
    reason = inductor_obstacle(device)
    name = "eager" if reason else "inductor"
    why = reason or f"fuses what lies between the large operators on {device.name}"
    return [{"backend": {"name": name, "why": why}}] if name in engines else []


def _best(measured: Comparison, recipes: dict[str, Recipe], max_error: float) -> Measurement | None:
    """The fastest row within the error; among ties the one with the fewest steps, eager before
    other engines.
    """
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
        yield step, step.why or _reason(step.kind, best, measured)


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
