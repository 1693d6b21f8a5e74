"""What binds a layer: computing, memory, or the overhead of calling its operators."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ..records import Ceiling, OperatorProfile
from .clock import call_costs_ms, operator_cost_ms
from .observation import Observation

VECTOR_WIDTHS = {"avx512f": 16, "avx2": 8, "neon": 4}  # fp32 numbers in one register
# of a layer's time: its operators were timed in other runs, so a smaller difference is no overhead
NOISE = 0.3
# 16-bit numbers: https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional
TENSOR_CORE_CHANNELS = 8


def limits_of(
    observation: Observation,
    row: dict[str, Any],
    ran: tuple[OperatorProfile, ...],
    outside_ms: float,
) -> dict[str, Any]:
    """The layer's time at each limit of this machine, its operators, and the binding limit."""
    call_ms, _ = call_costs_ms()
    computing = row["flops"] / peak_rate(observation.ceiling, row["dtype"]) / 1e6
    moving = row["bytes"] / observation.ceiling.bandwidth_gbs / 1e6
    calling = sum(op.calls for op in ran) * operator_cost_ms() + row["calls"] * call_ms
    overhead = min(
        row["self_ms"], max(calling, outside_ms if outside_ms > NOISE * row["self_ms"] else 0.0)
    )
    limits = {"compute": computing, "memory": moving, "overhead": overhead}
    matters = row["self_ms"] > 0 and (ran or row["calls"])
    return {
        "operators": _scaled(ran, row["self_ms"]),
        "overhead_ms": overhead,
        "roof_ms": max(computing, moving),
        "verdict": max(limits, key=lambda name: limits[name]) if matters else None,
    }


def least_inside(observation: Observation, home: dict[str, str]) -> dict[str, float]:
    """The time of each layer's operators in their fastest run, so that a busy machine is not
    counted as overhead.
    """
    runs: list[dict[str, float]] = []
    for run_ms in observation.operators.runs_ms:
        spent: dict[str, float] = defaultdict(float)
        for (layer, _), ms in run_ms.items():
            spent[home.get(layer, "")] += ms
        runs.append(spent)
    return {
        layer: min(run.get(layer, 0.0) for run in runs)
        for layer in {layer for run in runs for layer in run}
    }


def _scaled(ran: tuple[OperatorProfile, ...], self_ms: float) -> tuple[OperatorProfile, ...]:
    """Scale the operators' times, taken in other runs, to at most the time of their layer."""
    together = sum(op.ms for op in ran)
    if together <= self_ms:
        return ran
    return tuple(op.model_copy(update={"ms": op.ms * self_ms / together}) for op in ran)


def peak_rate(ceiling: Ceiling, dtype: str) -> float:
    """The peak rate of the device in a dtype; that of fp32 if the dtype's was not measured."""
    rates = {
        "bfloat16": ceiling.bf16_gflops,
        "float16": ceiling.fp16_gflops,
        "int8": ceiling.int8_gops,
    }
    return rates.get(dtype) or ceiling.fp32_gflops


def vector_width(observation: Observation) -> int:
    """How many channels the hardware processes in one step."""
    if observation.work.device.type == "cuda":
        return TENSOR_CORE_CHANNELS
    return next(
        (width for name, width in VECTOR_WIDTHS.items() if name in observation.machine.isa), 1
    )
