"""What binds a layer: computing, memory, or the overhead of calling its operators."""

from __future__ import annotations

from collections import defaultdict
from typing import Any

from ..records import Ceiling, OperatorProfile
from .clock import call_costs_ms, operator_cost_ms
from .observation import Observation

VECTOR_WIDTHS = {"avx512f": 16, "avx2": 8, "neon": 4}  # fp32 numbers in one register
# of a layer: its operators were timed in other runs, and a difference smaller than this is no
# overhead
NOISE = 0.3
# 16-bit numbers: https://docs.nvidia.com/deeplearning/performance/dl-performance-convolutional
CHANNELS_OF_A_TENSOR_CORE = 8


def limits_of(
    observation: Observation,
    row: dict[str, Any],
    ran: tuple[OperatorProfile, ...],
    outside_ms: float,
) -> dict[str, Any]:
    """How long the layer would take at each limit of this machine, its operators, and the limit
    that binds it.
    """
    call_ms, _ = call_costs_ms()
    computing = row["flops"] / _rate(observation.ceiling, row["dtype"]) / 1e6
    moving = row["bytes"] / observation.ceiling.bandwidth_gbs / 1e6
    calling = sum(one.calls for one in ran) * operator_cost_ms() + row["calls"] * call_ms
    overhead = min(
        row["self_ms"], max(calling, outside_ms if outside_ms > NOISE * row["self_ms"] else 0.0)
    )
    limits = {"compute": computing, "memory": moving, "overhead": overhead}
    matters = row["self_ms"] > 0 and (ran or row["calls"])
    return {
        "operators": _scaled(ran, row["self_ms"]),
        "overhead_ms": overhead,
        "roof_ms": max(computing, moving),
        "verdict": max(limits, key=lambda one: limits[one]) if matters else None,
    }


def least_inside(observation: Observation, home: dict[str, str]) -> dict[str, float]:
    """The time of each layer's operators in their fastest run, so that a busy moment of the machine
    is not counted as overhead.
    """
    runs: list[dict[str, float]] = []
    for seen in observation.operators.runs_ms:
        spent: dict[str, float] = defaultdict(float)
        for (layer, _), ms in seen.items():
            spent[home.get(layer, "")] += ms
        runs.append(spent)
    return {
        layer: min(run.get(layer, 0.0) for run in runs)
        for layer in {layer for run in runs for layer in run}
    }


def _scaled(ran: tuple[OperatorProfile, ...], self_ms: float) -> tuple[OperatorProfile, ...]:
    """Operators were timed in other runs than their layer; together they never take longer than
    it.
    """
    together = sum(one.ms for one in ran)
    if together <= self_ms:
        return ran
    return tuple(one.model_copy(update={"ms": one.ms * self_ms / together}) for one in ran)


def _rate(ceiling: Ceiling, dtype: str) -> float:
    """What the device computes at best in a dtype; in fp32 where the rate of that dtype was not
    measured.
    """
    rates = {
        "bfloat16": ceiling.bf16_gflops,
        "float16": ceiling.fp16_gflops,
        "int8": ceiling.int8_gops,
    }
    return rates.get(dtype) or ceiling.fp32_gflops


def vector_width(observation: Observation) -> int:
    """How many channels the hardware takes in one step."""
    if observation.work.device.type == "cuda":
        return CHANNELS_OF_A_TENSOR_CORE
    return next(
        (width for name, width in VECTOR_WIDTHS.items() if name in observation.machine.isa), 1
    )
