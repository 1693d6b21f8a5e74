"""What the workbench shows of one layer: its facts and the reasons for its time; and the steps that
would help the model.
"""

from __future__ import annotations

from typing import Any

from ..profiler import explain
from ..recipe import Recipe
from ..records import (
    Comparison,
    LayerProfile,
    Measurement,
    Profile,
    Reason,
    readable_bytes,
    readable_count,
)
from ..session.state import State

MOST_OFFERS = 4


def layer_details(profile: Profile, layer: str, baseline: Profile | None) -> dict[str, Any]:
    """Facts and reasons of a layer; of the whole model where none is selected."""
    row = profile.get(layer) or (baseline.get(layer) if baseline else None)
    if row is None:
        return {"layer": layer, "title": layer, "facts": [], "reasons": [], "point": None}
    if layer in profile:
        explanation = explain(profile, layer, against=baseline if baseline is not profile else None)
    # it went, or an engine runs it: what is known of it is from before, what was done is not
    else:
        explanation = explain(
            (baseline or profile).model_copy(update={"applied": profile.applied}), layer
        )
    return {
        "layer": layer,
        "title": explanation.title,
        "facts": _facts(row),
        "reasons": [
            {"sentence": reason.sentence, "advice": _advice(reason), "step": reason.step}
            for reason in explanation.reasons
        ],
        "point": {
            "intensity": row.intensity,
            "gflops": row.gflops,
            "ms": row.self_ms,
            "bound": row.verdict,
        }
        if row.intensity and row.gflops
        else None,
    }


def offers(state: State) -> list[dict[str, Any]]:
    """The steps that would help what runs now, the best first."""
    profile = state.profile or state.baseline
    if profile is None or len(profile) == 1:
        return []
    return [
        {
            "label": Recipe([reason.step])[0].label,
            "step": reason.step,
            "saves_ms": reason.saves_ms,
            "basis": reason.basis,
            "why": reason.sentence,
            "is_taken": _is_taken(reason.step, state.recipe),
        }
        for reason in explain(profile).advice[:MOST_OFFERS]
        if reason.step
    ]


def as_measured(found: list[dict[str, Any]], state: State) -> list[dict[str, Any]]:
    """Offers in milliseconds of the latency that is shown: a profile taken on a busy machine would
    promise more than there is.
    """
    compared, profile = state.comparison, state.profile or state.baseline
    now = (
        None
        if compared is None
        else current(compared)
        if len(state.recipe)
        else compared[compared.baseline]
    )
    if (
        state.is_busy
        or profile is None
        or now is None
        or not now.latency_ms
        or now.latency_ms >= profile.total_ms
    ):
        return found
    share = now.latency_ms / profile.total_ms
    return [one | {"saves_ms": one["saves_ms"] and one["saves_ms"] * share} for one in found]


def current(compared: Comparison) -> Measurement | None:
    """The measurement of the recipe; None where only the model as it is was measured."""
    return next((row for row in compared.rows if row.steps), None)


def _advice(reason: Reason) -> str:
    """The step as its chip will show it, and what it is worth."""
    return reason.advised(Recipe([reason.step])[0].label) if reason.step else ""


def _is_taken(offered: dict[str, dict[str, Any]], recipe: Recipe) -> bool:
    """Whether the recipe has the step, with what is offered among its options."""
    (kind, options), *_ = offered.items()
    return any(step.kind == kind and options.items() <= step.options.items() for step in recipe)


def _facts(row: LayerProfile) -> list[dict[str, str]]:
    facts = {
        "kind": f"{row.kind}({row.detail})" if row.detail else row.kind,
        "output": ", ".join("×".join(map(str, shape)) for shape in row.output_shapes),
        "format": row.dtype,
        "called": f"{row.calls} ×" if row.calls > 1 else "",
        "FLOPs": readable_count(row.total_flops) if row.total_flops else "",
        "weights": readable_count(row.total_parameters) if row.total_parameters else "",
        "moved": readable_bytes(row.total_bytes) if row.total_bytes else "",
        "held at most": readable_bytes(row.peak_bytes) if row.peak_bytes else "",
        "operators": ", ".join(one.name for one in row.operators[:6]),
    }
    return [{"name": name, "value": value} for name, value in facts.items() if value]
