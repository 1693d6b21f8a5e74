"""What a step is expected to leave of a model's latency, predicted from its profile.

A step has a few terms, each in milliseconds of the profile. Its coefficients say how much of each
is left; `python -m benchmarks advice --fit` fits them to speed-ups measured on the zoo's models
and writes them, with their error, to `expected.json`. The terms:

calls: the overhead of calling operators; products: layers that multiply; passes: layers that only
move or transform data; fp32, bf16: the products' arithmetic at the machine's rate; alone: what the
layers take with this step, timed by themselves; entry: one operator call, for entering an engine.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from ..engines import available_engines
from ..records import Ceiling, LayerProfile, Profile, Record, readable_ms

Step = dict[str, dict[str, Any]]
Rows = Sequence[LayerProfile]

FOLDED_INTO = ("Conv", "Linear")  # kinds of layer, by how they begin
FUSED_WITH = ("Conv2d", "Linear")
# fused by a step with the layer before
FUSED = ("ReLU", "ReLU6", "SiLU", "GELU", "Hardswish", "Hardsigmoid", "Sigmoid", "Tanh")

FILE = Path(__file__).with_name("expected.json")
MUCH_BETTER = 0.9  # of the time that a step leaves: one that changes the output must leave less

TOPICS = {
    "backend": "engine",
    "precision": "precision",
    "prune": "pruning",
    "fold": "folding",
    "fuse": "fusion",
    "layout": "layout",
}


class Coefficients(Record):
    """What a kind of step leaves of a millisecond of each term."""

    left: dict[str, float]
    error: float  # root mean square, of the logarithm, on models that it was not fitted to


class Calibration(Record):
    """The coefficients of every kind of step, and the record that they were fitted to."""

    fitted_to: str
    models: int
    steps: dict[str, Coefficients]


@cache
def calibration() -> Calibration:
    """The coefficients of this version."""
    return Calibration.load(FILE)


@dataclass(frozen=True)
class Kind:
    """A kind of step whose effect can be predicted: what it does, in words, and its terms."""

    step: Step
    effect: str
    terms: tuple[str, ...]
    is_exact: bool = True

    @property
    def name(self) -> str:
        """The kind of its recipe step."""
        return next(iter(self.step))

    @property
    def topic(self) -> str:
        """The subject of a reason that advises it."""
        return TOPICS[self.name]

    @property
    def engine(self) -> str | None:
        """The engine that the step selects, if it selects one."""
        return self.step.get("backend", {}).get("name")


@dataclass(frozen=True)
class Expected:
    """The latency that a step is expected to leave of some rows, and its usual error."""

    kind: Kind
    before_ms: float
    left_ms: float
    error: float

    @property
    def saves_ms(self) -> float:
        return self.before_ms - self.left_ms

    @property
    def error_ms(self) -> float:
        """The usual difference between the predicted and the measured saving."""
        return self.left_ms * math.expm1(self.error)

    @property
    def is_likely(self) -> bool:
        """Whether it would still save time if the prediction were too good by its usual error."""
        return self.saves_ms > self.error_ms

    @property
    def sentence(self) -> str:
        """What the step does and what is expected of it."""
        low, high = (self.left_ms * math.exp(sign * self.error) for sign in (-1, 1))
        change = "" if self.kind.is_exact else "; the output changes"
        return (
            f"{self.kind.effect}: {readable_ms(self.before_ms)} ms are expected to become "
            f"{readable_ms(self.left_ms)}, usually {readable_ms(low)}–{readable_ms(high)} (by "
            f"{calibration().models} models that were measured){change}."
        )


def is_calibrated(profile: Profile) -> bool:
    """Whether the coefficients hold for a profile: they are of eager torch on a CPU."""
    return profile.device == "cpu" and not profile.engine


def expected_of(profile: Profile, layer: str = "") -> list[Expected]:
    """What each kind of step that suits these layers is expected to leave, the best first."""
    if not is_calibrated(profile):
        return []
    rows = [row for _, row in profile.walk(layer)]
    found = [
        expected(profile, name, rows, is_whole=not layer)
        for name, kind in KINDS.items()
        if _suits(profile, rows, kind)
    ]
    return sorted(found, key=lambda each: -each.saves_ms)


def best_of(expectations: Sequence[Expected]) -> list[Expected]:
    """The best of each recipe step; one that keeps the output unless another is much better."""
    best: dict[str, Expected] = {}
    for each in sorted(expectations, key=lambda each: not each.kind.is_exact):
        other = best.get(each.kind.name)
        is_alike = other is not None and other.kind.is_exact == each.kind.is_exact
        limit = 1.0 if is_alike else MUCH_BETTER
        if other is None or each.left_ms < limit * other.left_ms:
            best[each.kind.name] = each
    return sorted(best.values(), key=lambda each: -each.saves_ms)


def expected(profile: Profile, name: str, rows: Rows, *, is_whole: bool = False) -> Expected:
    """What a kind of step is expected to leave of these rows; `is_whole` if they are the model."""
    kind, fitted = KINDS[name], calibration().steps[name]
    before = sum(row.self_ms for row in rows)
    terms = terms_of(profile, kind, rows, is_whole=is_whole)
    left = sum(fitted.left[term] * ms for term, ms in terms.items())
    return Expected(kind, before, left, fitted.error)


def terms_of(
    profile: Profile, kind: Kind, rows: Rows, *, is_whole: bool = True
) -> dict[str, float]:
    """The milliseconds of each of a kind's terms."""
    return {
        name: _term_ms(name, profile, rows, kind.step)
        for name in kind.terms
        if is_whole or name != "entry"
    }


def _suits(profile: Profile, rows: Rows, kind: Kind) -> bool:
    """Whether the step can be applied here and has something to change."""
    is_tried = any(tried.step == kind.step for row in rows for tried in row.alternatives)
    match kind.name:
        case "backend":
            is_fast = profile.ceiling.bf16_gflops is not None or "bf16" not in kind.terms
            return kind.engine in available_engines() and is_fast
        case "layout":  # images that convolutions read, and that are not in this layout already
            return is_tried or any(
                row.kind.startswith("Conv")
                and len(row.weight_shape) == 4
                and not row.is_channels_last
                for row in rows
            )
        case "precision":  # products in fp32, on a machine with a rate for the format
            has_rate = profile.ceiling.rate(kind.step["precision"]["default"]) is not None
            is_fp32 = any(row.macs and row.dtype in ("", "float32") for row in rows)
            return is_fp32 and (has_rate or is_tried)
        case "prune":  # several layers with weights: the last one's channels are the output
            return sum(len(row.weight_shape) > 1 for row in rows) > 1
        case "fold":
            return any(is_foldable(profile, row) for row in rows)
        case _:
            return any(is_fusable(profile, row) for row in rows)


_WHOLE_GRAPH = "Run as one call, with passes joined to the products before them"
KINDS: dict[str, Kind] = {
    "onnxruntime": Kind(
        {"backend": {"name": "onnxruntime"}}, _WHOLE_GRAPH, ("entry", "calls", "fp32", "passes")
    ),
    "openvino": Kind(
        {"backend": {"name": "openvino"}}, _WHOLE_GRAPH, ("entry", "calls", "fp32", "passes")
    ),
    "openvino in bf16": Kind(
        {"backend": {"name": "openvino", "bf16": True}},
        "Run as one call whose products compute in bf16",
        ("entry", "calls", "bf16", "passes"),
        is_exact=False,
    ),
    "inductor": Kind(
        {"backend": {"name": "inductor", "freeze": True}},
        "What lies between the products is compiled into few passes",
        ("calls", "products", "passes"),
    ),
    "fold": Kind({"fold": {}}, "Folded batch-norms cost nothing", ("folded", "rest")),
    "fuse": Kind(
        {"fuse": {}},
        "Activations are computed where the layer before writes",
        ("fused", "rest"),
    ),
    "layout": Kind({"layout": {}}, "Convolutions read neighbouring bytes", ("alone", "unchanged")),
    "bf16": Kind(
        {"precision": {"default": "bf16"}},
        "Products compute in bf16, converted before and after",
        ("conversions", "alone", "unchanged"),
        is_exact=False,
    ),
    "int8": Kind(
        {"precision": {"default": "int8"}},
        "Products compute in int8, converted before and after",
        ("conversions", "alone", "unchanged"),
        is_exact=False,
    ),
    "prune 25 %": Kind(
        {"prune": {"ratio": 0.25}},
        "A quarter of the channels is removed",
        ("setup", "fp32", "passes"),
        is_exact=False,
    ),
    "prune 50 %": Kind(
        {"prune": {"ratio": 0.5}},
        "Half of the channels are removed",
        ("setup", "fp32", "passes"),
        is_exact=False,
    ),
}


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


def _term_ms(name: str, profile: Profile, rows: Rows, step: Step) -> float:
    products = [row for row in rows if row.macs]
    match name:
        case "entry":  # the unit of what it costs to enter an engine once
            return profile.operator_us / 1e3
        case "conversions":  # of the inputs of each product, one operator call
            return profile.operator_us / 1e3 * sum(row.calls for row in products)
        case "calls":
            return sum(row.overhead_ms for row in rows)
        case "products":
            return sum(work_ms(row) for row in products)
        case "passes":  # activations, norms, sums, pools
            return sum(work_ms(row) for row in rows if not row.macs)
        case "fp32" | "bf16":
            return sum(_roof_ms(profile.ceiling, row, name) for row in products)
        case "setup":  # what calls and products take beyond the arithmetic: cuts do not shrink it
            beyond = (work_ms(row) - _roof_ms(profile.ceiling, row, "fp32") for row in products)
            return sum(row.overhead_ms for row in rows) + sum(max(ms, 0.0) for ms in beyond)
        case "alone":  # as timed alone with the step, the other products by the ceilings' ratio
            ratios = ((row, _tried(profile, row, step)) for row in rows)
            return sum(row.self_ms * ratio for row, ratio in ratios if ratio is not None)
        case "unchanged":
            return sum(row.self_ms for row in rows if _tried(profile, row, step) is None)
        case "folded":
            return sum(row.self_ms for row in rows if is_foldable(profile, row))
        case "fused":  # activations behind products, and batch-norms between them, which are folded
            return sum(
                row.self_ms for row in rows if is_fusable(profile, row) or is_foldable(profile, row)
            )
        case "rest":
            joined = "folded" if "fold" in step else "fused"
            return sum(row.self_ms for row in rows) - _term_ms(joined, profile, rows, step)
    raise ValueError(f"'{name}' is no term of a step.")


def _roof_ms(ceiling: Ceiling, row: LayerProfile, form: str) -> float:
    """A product at the machine's ceilings in a format: computing or memory, whichever binds."""
    gflops = ceiling.rate(form) or ceiling.fp32_gflops
    moved = row.moved_bytes / 2 if form == "bf16" else row.moved_bytes
    return max(row.flops / gflops, moved / ceiling.bandwidth_gbs) / 1e6


def _tried(profile: Profile, row: LayerProfile, step: Step) -> float | None:
    """The time of a layer with the step over its time now; None if the step does not change it."""
    for tried in row.alternatives:
        if tried.step == step:
            return tried.there_ms / tried.here_ms
    form = step.get("precision", {}).get("default")
    if form is None or not row.macs or row.verdict != "compute" or row.alternatives:
        return None
    rate = profile.ceiling.rate(form)
    return profile.ceiling.fp32_gflops / rate if rate else None
