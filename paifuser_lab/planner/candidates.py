"""What may make a model faster here without changing its output, or within an allowed error:
`plan_candidates` lists what `plan` times against each other.
"""

from __future__ import annotations

from typing import Any

from torch import nn

from ..machine import thread_choices
from ..memory.pools import pool_gain
from ..model.fold import plan_fold
from ..model.graph import observe
from ..records import Hardware, Limit
from ..workload import Workload, running
from .ranking import EXACT

MIN_SPEEDUP = 1.3  # a format is tried when the hardware computes this much faster in it
MIN_INT8_ERROR = 0.01  # int8 is not tried where the allowed error is smaller
WIDE_OPEN = Limit(metric_drop=1.0, output_error=1e9)  # `plan` and a search have limits of their own

Choice = dict[str, dict[str, Any]]


def folding_of(work: Workload) -> list[Choice]:
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


def plan_candidates(
    work: Workload, machine: Hardware, max_error: float, engines: tuple[str, ...]
) -> list[list[Choice]]:
    """Each engine with each sensible number of threads, in each format that pays off."""
    formats = [
        None,
        *(
            name
            for name in (half_format(machine, max_error), int8_format(machine, max_error))
            if name
        ),
    ]
    layouts: list[list[Choice]] = [[], [{"layout": {}}]] if has_images(work) else [[]]
    counts = thread_choices() if work.device.type == "cpu" else thread_choices()[-1:]
    gain = pool_gain(work)
    pools: list[Choice] = [{"pool": {"why": gain.sentence}}] if gain and gain.pays else []
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
            eager += [[*pools, *steps] for steps in eager[-1:] if pools]
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


def half_format(machine: Hardware, max_error: float) -> str | None:
    """The 16-bit format that is much faster here than fp32, if there is one and it is allowed."""
    target = machine.target
    if max_error <= EXACT:
        return None
    for name, rate in (("bf16", target.bf16_gflops), ("fp16", target.fp16_gflops)):
        if rate is not None and rate > MIN_SPEEDUP * target.fp32_gflops:
            return name
    return None


def int8_format(machine: Hardware, max_error: float) -> str | None:
    """int8 where the hardware computes much faster in it, and the allowed error permits it."""
    rate = machine.target.int8_gops
    is_faster = rate is not None and rate > MIN_SPEEDUP * machine.target.fp32_gflops
    is_allowed = is_faster and not machine.accelerators and max_error >= MIN_INT8_ERROR
    return "int8" if is_allowed else None


def has_images(work: Workload) -> bool:
    return any(tensor.ndim == 4 for tensor in work.inputs.tensors) and any(
        isinstance(module, nn.Conv2d) for module in work.model.modules()
    )
