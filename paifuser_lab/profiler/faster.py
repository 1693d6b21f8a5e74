"""Raise a measured ceiling to the rate of a layer that beats it."""

from __future__ import annotations

from torch import Tensor, backends

from ..machine import keep_faster
from ..quantization import Int8Layer, QuantizedLayer
from ..records import ENGINE_ROW, LayerProfile, Profile
from .observation import Observation
from .rows import profile_of

RATES = {
    "float32": "fp32_gflops",
    "bfloat16": "bf16_gflops",
    "float16": "fp16_gflops",
    "int8": "int8_gops",
}
MIN_RATIO = 1.03  # to the ceiling
MAX_RATIO = 4.0  # above it, the operator does less than was counted
MIN_MS = 0.2  # of a layer; below it the clock's own cost dominates
MIN_RUNS = 5


def finished(observation: Observation) -> Profile:
    """The profile of an observation, with ceilings that none of its layers exceeds."""
    profile = profile_of(observation)
    rates = rates_beyond(observation, profile)
    if not rates:
        return profile
    keep_faster(observation.machine, observation.threads, rates)
    observation.machine = observation.machine.raised(observation.threads, rates)
    return profile_of(observation)


def rates_beyond(observation: Observation, profile: Profile) -> dict[str, float]:
    """The highest CPU rate of layers in each format, where it beats the ceiling of the same number
    of threads.
    """
    ceiling = observation.ceiling
    if (
        profile.device != "cpu"
        or ceiling.threads != observation.threads
        or len(observation.plain_ms) < MIN_RUNS
    ):
        return {}
    best: dict[str, float] = {}
    for row in profile:
        if row.layer == ENGINE_ROW:
            continue
        name = RATES.get(row.dtype, "")
        known = getattr(ceiling, name, None)
        if (
            known
            and row.gflops
            and MIN_RATIO * known < row.gflops <= MAX_RATIO * known
            and _is_comparable(observation, row)
        ):
            best[name] = max(best.get(name, 0.0), row.gflops)
    return best


def _is_comparable(observation: Observation, row: LayerProfile) -> bool:
    """Whether the layer multiplies in the format of its row, and runs long enough to be timed."""
    module = observation.layered.get_submodule(row.layer)
    if row.self_ms < MIN_MS or not row.macs:
        return False
    if isinstance(module, QuantizedLayer):
        return isinstance(module, Int8Layer)
    weight = getattr(module, "weight", None)
    is_same = isinstance(weight, Tensor) and str(weight.dtype) == f"torch.{row.dtype}"
    return is_same and (row.dtype != "float32" or _is_true_fp32())


def _is_true_fp32() -> bool:
    """Whether products and convolutions in fp32 use neither bf16 nor TF32."""
    parts = (getattr(backends.mkldnn, name, None) for name in ("matmul", "conv"))
    return all(getattr(part, "fp32_precision", "ieee") in ("none", "ieee") for part in parts)
