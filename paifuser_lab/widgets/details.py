"""What the workbench shows of one layer (facts, and reasons for its time), and suggested steps."""

from __future__ import annotations

from typing import Any

from ..profiler import explain
from ..profiler.advice import Advice, advise, measured_of
from ..records import (
    Candidates,
    Comparison,
    LayerProfile,
    Measurement,
    Profile,
    Reason,
    readable_bytes,
    readable_count,
)
from ..records.text import readable_ratio
from ..session.state import State
from ..variant.recipe import Recipe
from ..views.roofline import small_picture
from .wire import pictured

MAX_OFFERS = 4
COMPANY = 14  # layers beside the chosen one on its roofline


def layer_details(
    profile: Profile, layer: str, baseline: Profile | None, candidates: Candidates | None = None
) -> dict[str, Any]:
    """Facts and reasons of a layer, or of the whole model; of a step, what a search measured."""
    row = profile.get(layer) or (baseline.get(layer) if baseline else None)
    if row is None:
        return {"layer": layer, "title": layer, "facts": [], "reasons": [], "chart": None}
    if layer in profile:
        explanation = explain(profile, layer, against=baseline if baseline is not profile else None)
    # removed, or inside an engine: explain its baseline row, with the steps applied since
    else:
        explanation = explain(
            (baseline or profile).model_copy(update={"applied": profile.applied}), layer
        )
    return {
        "layer": layer,
        "title": explanation.title,
        "facts": _facts(row),
        "reasons": [
            _shown(reason, candidates, is_whole=not layer) for reason in explanation.reasons
        ],
        "chart": _chart(profile, profile if layer in profile else baseline or profile, layer),
    }


def _chart(profile: Profile, of: Profile, layer: str) -> dict[str, Any] | None:
    """A layer of a profile, or the model, among the costliest layers on the roofline."""
    own = [point for point in of.roofline.points if point.layer == layer]
    if layer and not own:
        return None
    others = [point for point in profile.roofline.points if point.layer not in ("", layer)]
    others = sorted(others, key=lambda point: -point.ms)[:COMPANY]
    points = [*others, *own]
    return pictured(small_picture(profile.ceiling, points)) if points else None


def offers(state: State) -> list[dict[str, Any]]:
    """Suggested steps for the current profile, the best first."""
    profile = state.profile or state.baseline
    if profile is None:
        return []
    advice = advise(profile, candidates=state.record("candidates"))
    return [
        _offer(each, profile, state.recipe) | {"is_taken": _is_taken(each.step, state.recipe)}
        for each in [each for each in advice if each.is_worthwhile][:MAX_OFFERS]
    ]


def _offer(advice: Advice, profile: Profile, recipe: Recipe) -> dict[str, Any]:
    row = advice.measured
    if row is None:
        reason = advice.reason(profile)
        return {
            "label": Recipe([advice.step])[0].label,
            "step": advice.step,
            "saves_ms": advice.saves_ms,
            "basis": reason.certainty,
            "why": reason.sentence,
        }
    return {
        "label": row.label,
        "step": advice.step,
        "effect": f"{readable_ratio(row.speedup or 1.0)} × {row.word}",
        # the click adds the step to a recipe that it was not measured with
        "basis": "as the only step" if len(recipe) else "measured",
        "why": f"{row.why}: {row.sentence}",
    }


def _shown(reason: Reason, candidates: Candidates | None, *, is_whole: bool) -> dict[str, Any]:
    """A reason with its step and what that saves, as a search measured it if one did."""
    shown = {"sentence": reason.sentence, "advice": "", "step": reason.step}
    if reason.step is None:
        return shown
    label, row = Recipe([reason.step])[0].label, measured_of(reason.step, candidates)
    if row is None:
        return shown | {"advice": reason.advised(label)}
    if is_whole:
        shown["sentence"] = f"{row.why[:1].upper()}{row.why[1:]}."
    is_offered = row.word == "faster"
    return shown | {
        "advice": f"{label}: {row.effect} in the whole model",
        "step": reason.step if is_offered else None,
    }


def current(compared: Comparison) -> Measurement | None:
    """The measurement of the recipe; None if only the baseline was measured."""
    return next((row for row in compared.rows if row.steps), None)


def _is_taken(offered: dict[str, dict[str, Any]], recipe: Recipe) -> bool:
    """Whether the recipe has the step with the offered options."""
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
        "read and written": readable_bytes(row.total_bytes) if row.total_bytes else "",
        "peak memory": readable_bytes(row.peak_bytes) if row.peak_bytes else "",
        "operators": ", ".join(operator.name for operator in row.operators[:6]),
    }
    return [{"name": name, "value": value} for name, value in facts.items() if value]
