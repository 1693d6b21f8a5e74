"""What the workbench shows of one layer (facts, and reasons for its time), and suggested steps."""

from __future__ import annotations

from typing import Any

from ..profiler import explain
from ..recipe import Recipe
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
from ..session.state import State

MAX_OFFERS = 4


def layer_details(profile: Profile, layer: str, baseline: Profile | None) -> dict[str, Any]:
    """Facts and reasons of a layer, or of the whole model if none is selected."""
    row = profile.get(layer) or (baseline.get(layer) if baseline else None)
    if row is None:
        return {"layer": layer, "title": layer, "facts": [], "reasons": [], "point": None}
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
    """Suggested steps for the current profile, the best first: as they were measured by a search,
    else as they are estimated.
    """
    profile = state.profile or state.baseline
    if profile is None:
        return []
    candidates = state.record("candidates")
    if candidates is not None and candidates.ranked:
        return _ranked_offers(candidates, profile, state)
    if len(profile) == 1:
        return []
    return [
        {
            "label": Recipe([reason.step])[0].label,
            "step": reason.step,
            "saves_ms": reason.saves_ms,
            "basis": reason.certainty,
            "why": reason.sentence,
            "is_taken": _is_taken(reason.step, state.recipe),
        }
        for reason in explain(profile).advice[:MAX_OFFERS]
        if reason.step
    ]


def _ranked_offers(candidates: Candidates, profile: Profile, state: State) -> list[dict[str, Any]]:
    """The candidates that one step makes (besides folding, which engines do themselves), with what
    they save of the current profile.
    """
    before = state.baseline or profile
    shown = []
    for row in candidates.ranked:
        main = [step for step in row.steps if "fold" not in step] or list(row.steps)
        saves = profile.total_ms - before.total_ms / row.speedup if row.speedup else 0.0
        is_taken = _is_taken(main[0], state.recipe)
        if len(main) > 1 or (saves <= 0 and not is_taken):
            continue
        shown.append(
            {
                "label": row.label,
                "step": main[0],
                "saves_ms": saves,
                # the click adds the step to a recipe that it was not measured with
                "basis": "measured alone" if len(state.recipe) else "measured",
                "why": f"{row.why}: {row.sentence}",
                "is_taken": is_taken,
            }
        )
    return shown[:MAX_OFFERS]


def as_measured(offers: list[dict[str, Any]], state: State) -> list[dict[str, Any]]:
    """Scale the offers' savings to the measured latency: a profile taken on a busy machine would
    overstate them.
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
        return offers
    share = now.latency_ms / profile.total_ms
    return [
        offer | {"saves_ms": offer["saves_ms"] and offer["saves_ms"] * share} for offer in offers
    ]


def current(compared: Comparison) -> Measurement | None:
    """The measurement of the recipe; None if only the baseline was measured."""
    return next((row for row in compared.rows if row.steps), None)


def _advice(reason: Reason) -> str:
    """The step's label and its estimated saving."""
    return reason.advised(Recipe([reason.step])[0].label) if reason.step else ""


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
