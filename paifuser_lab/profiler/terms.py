"""Parts of a profile's time, in milliseconds, from which the effect of a step is predicted.

calls: the overhead of calling operators; products: layers that multiply; passes: layers that only
move or transform data; fp32, bf16: the products' arithmetic at the machine's rate; alone: what the
layers take with this step, timed by themselves; entry: one operator call, for entering an engine.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any

from ..records import Ceiling, LayerProfile, Profile

Step = dict[str, dict[str, Any]]
Rows = Sequence[LayerProfile]

FOLDED_INTO = ("Conv", "Linear")  # kinds of layer, by how they begin
FUSED_WITH = ("Conv2d", "Linear")
# fused by a step with the layer before
FUSED = ("ReLU", "ReLU6", "SiLU", "GELU", "Hardswish", "Hardsigmoid", "Sigmoid", "Tanh")


def rate_in(ceiling: Ceiling, form: str) -> float | None:
    """The machine's rate in a format; None if it was not measured."""
    return {
        "fp32": ceiling.fp32_gflops,
        "bf16": ceiling.bf16_gflops,
        "fp16": ceiling.fp16_gflops,
        "int8": ceiling.int8_gops,
    }[form]


def is_foldable(profile: Profile, row: LayerProfile) -> bool:
    """Whether it is a batch-norm that can be folded into the layer before it."""
    if not row.kind.startswith("BatchNorm") or len(row.reads_from) != 1:
        return False
    before = profile.get(row.reads_from[0])
    if before is None or max(before.calls, row.calls) > 1:
        return False
    return before.kind.startswith(FOLDED_INTO) and _only_reader(profile, before, row)


def _only_reader(profile: Profile, before: LayerProfile, row: LayerProfile) -> bool:
    return [other.layer for other in profile if before.layer in other.reads_from] == [row.layer]


def is_fusable(profile: Profile, row: LayerProfile) -> bool:
    """Whether the step `fuse` fuses the layer with the one before, a folded batch-norm aside."""
    if row.kind not in FUSED or len(row.reads_from) != 1:
        return False
    before = profile.get(row.reads_from[0])
    if before is None or not _only_reader(profile, before, row):
        return False
    if is_foldable(profile, before):
        before = profile[before.reads_from[0]]
    return before.kind in FUSED_WITH


def work_ms(row: LayerProfile) -> float:
    """A layer's own time without the overhead of calling its operators."""
    return max(row.self_ms - row.overhead_ms, 0.0)


def _entry(profile: Profile, rows: Rows, step: Step) -> float:
    """One operator call: the unit of what it costs to enter an engine once."""
    return profile.operator_us / 1e3


def _conversions(profile: Profile, rows: Rows, step: Step) -> float:
    """One operator call for each call of a product, whose inputs are converted."""
    return profile.operator_us / 1e3 * sum(row.calls for row in rows if row.macs)


def _calls(profile: Profile, rows: Rows, step: Step) -> float:
    return sum(row.overhead_ms for row in rows)


def _products(profile: Profile, rows: Rows, step: Step) -> float:
    return sum(work_ms(row) for row in rows if row.macs)


def _passes(profile: Profile, rows: Rows, step: Step) -> float:
    """What moves data and multiplies nothing: activations, norms, sums, pools."""
    return sum(work_ms(row) for row in rows if not row.macs)


def _arithmetic(form: str, size: float, profile: Profile, rows: Rows, step: Step) -> float:
    """The products at the machine's ceilings in a format: computing or memory, whichever binds."""
    return sum(_roof_ms(profile.ceiling, row, form, size) for row in rows if row.macs)


def _roof_ms(ceiling: Ceiling, row: LayerProfile, form: str, size: float) -> float:
    gflops = rate_in(ceiling, form) or ceiling.fp32_gflops
    return max(row.flops / gflops, size * row.moved_bytes / ceiling.bandwidth_gbs) / 1e6


def _setup(profile: Profile, rows: Rows, step: Step) -> float:
    """What calls and products take beyond the arithmetic: it does not shrink with the channels."""
    beyond = (
        work_ms(row) - _roof_ms(profile.ceiling, row, "fp32", 1.0) for row in rows if row.macs
    )
    return _calls(profile, rows, step) + sum(max(ms, 0.0) for ms in beyond)


def _alone(profile: Profile, rows: Rows, step: Step) -> float:
    """Layers with the step as they were timed alone, the other products by the ceilings' ratio."""
    found = ((row, _tried(profile, row, step)) for row in rows)
    return sum(row.self_ms * ratio for row, ratio in found if ratio is not None)


def _unchanged(profile: Profile, rows: Rows, step: Step) -> float:
    return sum(row.self_ms for row in rows if _tried(profile, row, step) is None)


def _tried(profile: Profile, row: LayerProfile, step: Step) -> float | None:
    """The time of a layer with the step over its time now; None if the step does not change it."""
    for tried in row.alternatives:
        if tried.step == step:
            return tried.there_ms / tried.here_ms
    form = step.get("precision", {}).get("default")
    if form is None or not row.macs or row.verdict != "compute" or row.alternatives:
        return None
    rate = rate_in(profile.ceiling, form)
    return profile.ceiling.fp32_gflops / rate if rate else None


def _folded(profile: Profile, rows: Rows, step: Step) -> float:
    return sum(row.self_ms for row in rows if is_foldable(profile, row))


def _fused(profile: Profile, rows: Rows, step: Step) -> float:
    """Activations behind products, and batch-norms between them, which fusing folds first."""
    return sum(row.self_ms for row in rows if is_fusable(profile, row) or is_foldable(profile, row))


def _rest(profile: Profile, rows: Rows, step: Step) -> float:
    joined = _folded if "fold" in step else _fused
    return sum(row.self_ms for row in rows) - joined(profile, rows, step)


TERMS: dict[str, Callable[[Profile, Rows, Step], float]] = {
    "entry": _entry,
    "conversions": _conversions,
    "calls": _calls,
    "products": _products,
    "setup": _setup,
    "passes": _passes,
    "fp32": partial(_arithmetic, "fp32", 1.0),
    "bf16": partial(_arithmetic, "bf16", 0.5),
    "alone": _alone,
    "unchanged": _unchanged,
    "folded": _folded,
    "fused": _fused,
    "rest": _rest,
}
