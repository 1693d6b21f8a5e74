"""What the workbench shows of a session, as plain values: header, chips, offers, and the selected
layer's facts.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from ..formats import AUTOCAST, NAMES
from ..machine import hardware
from ..profiler import explain, side_by_side
from ..quantization import obstacle
from ..quantization.float_formats import autocast_obstacle
from ..recipe import Recipe
from ..records import (
    Comparison,
    Coupling,
    CutCost,
    FusionMap,
    LayerProfile,
    Measurement,
    Profile,
    Reason,
    Record,
    readable_bytes,
    readable_count,
)
from ..session.state import State
from ..workload import Workload
from .allocating import allocated
from .attending import attending_now, taking_part
from .cuts import cut_by, cut_shown
from .fusing import fused_by_recipe, fused_now, map_shown
from .recipe_panel import chips
from .wire import packed

CHOICES = ("", *NAMES, *AUTOCAST)
MOST_OFFERS = 4
LOOKING = {
    "sensing": "how much each layer matters, in seconds",
    "weighing": "how much each channel matters, in seconds",
    "coupling": "which channels go together",
    "planning": "a number format for each layer, in seconds",
    "proving": "what the chosen formats really do, in seconds",
    "fusing": "what can run as one, in seconds",
    "attending": "what attention to a part of the keys costs, in seconds",
}

Reasons = Mapping[
    str, str | Mapping[str, str]
]  # layer → why it can take no format, or format → why not that one


class Shown:
    """A workload's fixed facts, and what is made of each state."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self._made: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self._stamps = 0

    @cached_property
    def hardware(self) -> dict[str, Any]:
        """The machine's card."""
        return packed(hardware())

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """What does not change."""
        machine = hardware()
        return {
            "workload": self.work.name,
            "machine": machine.label,
            "inputs": ", ".join("×".join(map(str, one.shape)) for one in self.work.inputs.tensors),
            "parameters": sum(weight.numel() for weight in self.work.model.parameters()),
            "choices": list(CHOICES),
            **parted(self.cannot),
        }

    @cached_property
    def cannot(self) -> Reasons:
        """What the layers cannot be computed in, and why."""
        return {
            name: why
            for name, module in self.work.model.named_modules()
            if name and (why := obstacles(module))
        }

    def state(self, state: State) -> dict[str, Any]:
        """What the page is sent for a state."""
        return {
            **self.fixed,
            "flops": state.baseline.root.total_flops if state.baseline else None,
            "figures": figures(
                state, has_data=self.work.metric is not None and self.work.test is not None
            ),
            "is_partial": state.status == "measuring",
            "recipe": _chips(state),
            "status": state.status,
            "doing": LOOKING.get(state.status, state.recipe.label),
            "done": state.done,
            "total": state.total,
            "error": state.error,
            "refused": refused(state),
            "can_undo": state.can_undo,
            "can_redo": state.can_redo,
            "precisions": precisions(state),
            "pruned": pruned(state),
            "cut": cut_shown(state),
            "cut_by": cut_by(state, self.work),
            "allocated": self._once(
                "allocated", lambda: allocated(state), state.allocation, state.recipe
            ),
            "fused": fused_now(state),
            "attending": attending_now(state.recipe),
            "taking_part": taking_part(state.variant, state.recipe),
            "channels": self._once(
                "channels", lambda: channels(state), state.profile, state.baseline
            ),
            "changes": self._once("changes", lambda: changes(state), state.profile, state.baseline),
            "offers": as_measured(
                self._once(
                    "offers", lambda: offers(state), state.profile, state.baseline, state.recipe
                ),
                state,
            ),
        }

    def packed(self, name: str, found: Record) -> dict[str, Any]:
        """What a tab shows of a record, packed once: views are sent again whenever one of them
        changes.
        """
        data: dict[str, Any] = self._once(name, lambda: self._stamped(packed(found)), found)
        return data

    def fusions(self, state: State) -> FusionMap | None:
        """Where layers can run as one, and where they do by the recipe."""
        did = fused_by_recipe(state)
        shown: FusionMap | None = self._once(
            "fusions", lambda: map_shown(state.fusions, did), state.fusions, did
        )
        return shown

    def coupling(self, found: Coupling, cost: CutCost | None) -> dict[str, Any]:
        """The groups of channels, and what fewer of them would cost where that is known."""

        def make() -> dict[str, Any]:
            return self._stamped(
                packed(found) | ({"cost": packed(cost)} if cost is not None else {})
            )

        data: dict[str, Any] = self._once("coupling", make, found, cost)
        return data

    def _stamped(self, data: dict[str, Any]) -> dict[str, Any]:
        """With a number by which the page knows it again when views are sent anew: what is under a
        hand stays as it is.
        """
        self._stamps += 1
        return data | {"stamp": self._stamps}

    def _once(self, name: str, make: Callable[[], Any], *sources: Any) -> Any:
        """Made anew only when what it is made from is another: states come many times a second."""
        before, made = self._made.get(name, ((), None))
        if len(before) != len(sources) or any(
            one is not other for one, other in zip(before, sources, strict=True)
        ):
            made = make()
            self._made[name] = (sources, made)
        return made

    def detail(self, profile: Profile, layer: str, baseline: Profile | None) -> dict[str, Any]:
        """Facts and reasons of a layer; of the whole model where none is selected."""
        row = profile.get(layer) or (baseline.get(layer) if baseline else None)
        if row is None:
            return {"layer": layer, "title": layer, "facts": [], "reasons": [], "point": None}
        if layer in profile:
            found = explain(profile, layer, against=baseline if baseline is not profile else None)
        # it went, or an engine runs it: what is known of it is from before, what was done is not
        else:
            found = explain(
                (baseline or profile).model_copy(update={"applied": profile.applied}), layer
            )
        return {
            "layer": layer,
            "title": found.title,
            "facts": _facts(row),
            "reasons": [
                {"sentence": one.sentence, "advice": _advice(one), "step": one.step}
                for one in found.reasons
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


def obstacles(module: Any) -> str | dict[str, str]:
    """Why a layer cannot be in any number format, or format by format why not in some; of one with
    parts each part is asked.
    """
    if not any(weight.is_floating_point() for weight in module.parameters()):
        return "it has no weights; it computes in the format of what it is given"
    if next(module.children(), None) is not None:
        return {}
    barred = {name: obstacle(module, name) for name in NAMES} | dict.fromkeys(
        AUTOCAST, autocast_obstacle(module)
    )
    return {name: why for name, why in barred.items() if why}


def parted(cannot: Reasons) -> dict[str, dict[str, Any]]:
    """The layers that can take no format, and those that cannot take some."""
    return {
        "cannot": {layer: why for layer, why in cannot.items() if isinstance(why, str)},
        "cannot_in": {
            layer: dict(why) for layer, why in cannot.items() if not isinstance(why, str)
        },
    }


def figures(state: State, *, has_data: bool) -> list[dict[str, Any]]:
    """The header: each figure as it was and as it is now."""
    compared = state.comparison
    before = compared[compared.baseline] if compared else None
    now = _current(compared) if compared and len(state.recipe) else before
    rows = [_figure("latency", before, now, "latency_ms", "ms")]
    if (
        now is not None
        and now is not before
        and now.speedup is not None
        and now.speedup_interval is not None
    ):
        low, high = now.speedup_interval
        note = "faster" if low > 1 else "slower" if high < 1 else "no faster, within the interval"
        rows[0] |= {"ratio": now.speedup, "low": low, "high": high, "note": note}
    rows += [
        _figure("memory", before, now, "peak_bytes", "B"),
        _figure("size", before, now, "size_bytes", "B"),
        _figure("parameters", before, now, "parameters", ""),
    ]
    metric = _figure(
        compared.metric_name if compared and compared.metric_name else "metric",
        before,
        now,
        "metric",
        "%",
    )
    rows.append(metric | ({} if has_data else {"note": "no test data"}))
    error = now.relative_error if now is not None and now is not before else None
    rows.append({"name": "output error", "before": None, "now": error, "unit": ""})
    return rows


def refused(state: State) -> str | None:
    """Why what runs now is past its recipe's limit."""
    now = _current(state.comparison) if state.comparison and len(state.recipe) else None
    return now.refused if now else None


def _current(compared: Comparison) -> Measurement | None:
    return next((row for row in compared.rows if row.steps), None)


def _figure(
    name: str, before: Measurement | None, now: Measurement | None, field: str, unit: str
) -> dict[str, Any]:
    return {
        "name": name,
        "before": getattr(before, field, None),
        "now": getattr(now, field, None),
        "unit": unit,
    }


def _chips(state: State) -> list[dict[str, Any]]:
    reports = (
        state.variant.reports
        if state.variant is not None and state.variant.recipe == state.recipe
        else ()
    )
    notes = [" · ".join(report.notes) for report in reports] or [""] * len(state.recipe)
    return [chip | {"note": note} for chip, note in zip(chips(state.recipe), notes, strict=True)]


def precisions(state: State) -> dict[str, str]:
    """The number format chosen for each layer by itself."""
    return {
        layer: name
        for step in state.recipe
        if step.kind == "precision"
        for layer, name in step.options.get("layers", {}).items()
    }


def pruned(state: State) -> dict[str, float]:
    """The share of channels that is chosen to be removed from each layer by itself."""
    return {
        layer: ratio
        for step in state.recipe
        if step.kind == "prune"
        for layer, ratio in step.options.get("layers", {}).items()
    }


def channels(state: State) -> dict[str, list[int]]:
    """The output channels that each layer has now, and those that it had."""
    if state.baseline is None:
        return {}
    now = state.profile or state.baseline
    had = {row.layer: width for _, row in state.baseline.walk() if (width := output_width(row))}
    return {
        layer: [(output_width(now[layer]) if layer in now else None) or width, width]
        for layer, width in had.items()
    }


def output_width(row: LayerProfile) -> int | None:
    """How many output channels a layer has, by the shape of its weight; None for one that has
    none.
    """
    if not row.weight_shape or not row.kind.startswith(("Conv", "Linear", "Embedding")):
        return None
    if row.kind == "Conv1D":  # of GPT-2
        return row.weight_shape[-1]
    return row.weight_shape[1 if row.kind.startswith(("ConvTranspose", "Embedding")) else 0]


def changes(state: State) -> dict[str, str]:
    """What the recipe did to each layer."""
    chosen = {layer: f"in {name}" for layer, name in precisions(state).items()}
    if state.profile is None or state.baseline is None or state.profile is state.baseline:
        return chosen
    return chosen | {
        row.layer: row.note
        for row in side_by_side(state.baseline, state.profile).rows
        if row.note and row.layer
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
        else _current(compared)
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


def _advice(reason: Reason) -> str:
    """The step as its chip will show it, and what it is worth."""
    return reason.advised(Recipe([reason.step])[0].label) if reason.step else ""


def _is_taken(offered: dict[str, dict[str, Any]], recipe: Recipe) -> bool:
    """Whether the recipe has the step, with what is offered among its options."""
    (kind, options), *_ = offered.items()
    return any(step.kind == kind and options.items() <= step.options.items() for step in recipe)


def _facts(row: LayerProfile) -> list[dict[str, str]]:
    told = {
        "kind": f"{row.kind}({row.detail})" if row.detail else row.kind,
        "output": ", ".join("×".join(map(str, shape)) for shape in row.output_shapes),
        "number format": row.dtype,
        "called": f"{row.calls} ×" if row.calls > 1 else "",
        "FLOPs": readable_count(row.total_flops) if row.total_flops else "",
        "weights": readable_count(row.total_parameters) if row.total_parameters else "",
        "moved": readable_bytes(row.total_bytes) if row.total_bytes else "",
        "held at most": readable_bytes(row.peak_bytes) if row.peak_bytes else "",
        "operators": ", ".join(one.name for one in row.operators[:6]),
    }
    return [{"name": name, "value": value} for name, value in told.items() if value]
