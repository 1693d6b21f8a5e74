"""The values that the workbench's page is sent for each state of a session."""

from __future__ import annotations

import html
from collections.abc import Callable
from functools import cached_property, partial
from typing import Any

from ..jobs import QUERIES, subject_of
from ..machine import machine_label
from ..records import Profile
from ..records.quality import ADVICE
from ..records.text import readable_ms
from ..session.state import State
from ..variant.recipe import Recipe
from ..workload import Workload
from .details import current, layer_details, offers
from .panel import Panel
from .section import Section, packed, sections
from .tabs.importance import packed_cut
from .tabs.layers import times_before


class RecipePanel(Panel):
    """The widget of a recipe: its steps in order, each with its reason."""

    def __init__(self, recipe: Recipe) -> None:
        super().__init__("recipe", workload=recipe.workload or "")
        self.recipe = recipe
        self.data = {"title": recipe.label, "steps": chips(recipe)}

    def twin(self) -> str:
        return f"<pre>{html.escape(self.recipe.to_text())}</pre>"

    def __repr__(self) -> str:
        return f"RecipePanel({self.recipe.label})"


def chips(recipe: Recipe) -> list[dict[str, Any]]:
    """Label, kind and reason of each step."""
    return [{"label": step.label, "kind": step.kind, "why": step.why or ""} for step in recipe]


class Presenter:
    """Computes what the page is sent for each state, with a cache of unchanged parts."""

    def __init__(self, work: Workload) -> None:
        self.work = work
        self._cache: dict[str, tuple[tuple[Any, ...], Any]] = {}
        self._views: dict[str, Any] = {}
        self._stamps = 0

    @cached_property
    def fixed(self) -> dict[str, Any]:
        """The values that never change."""
        return {
            "workload": self.work.name,
            "machine": machine_label(),
            "inputs": ", ".join("×".join(map(str, x.shape)) for x in self.work.inputs.tensors),
            "parameters": sum(weight.numel() for weight in self.work.model.parameters()),
        }

    def state(self, state: State) -> dict[str, Any]:
        """The state trait: the common values, and each section's part."""
        values = self.fixed | self._common(state)
        for section in sections():
            values |= section.state(state, self)
        return values | {"absent": self.absent(state)}

    def absent(self, state: State) -> dict[str, str]:
        """The sections that do not apply to this model, and why."""
        reasons = {section.name: section.absent(state, self) for section in sections()}
        return {name: why for name, why in reasons.items() if why}

    def views(self, state: State) -> dict[str, Any] | None:
        """The data of the sections' views; None if they are the same objects as before."""
        views: dict[str, Any] = {}
        for section in sections():
            name, sources = section.name, section.sources_in(state)
            if any(source is not None for source in sources):
                data = self.once(f"view {name}", partial(self._packed, section, *sources), *sources)
                if data is not None:
                    views[name] = data
        before, self._views = self._views, views
        is_same = before.keys() == views.keys() and all(
            before[name] is data for name, data in views.items()
        )
        return None if is_same else views

    def profile(self, profile: Profile, before: Profile | None = None) -> dict[str, Any]:
        """The data of the layer table; `before` is the profile of the unchanged model."""
        return packed(profile) | times_before(profile, before)

    def detail(self, state: State, layer: str) -> dict[str, Any]:
        """Facts and reasons of a layer, or of the whole model if none is selected."""
        profile = state.profile or state.baseline
        if profile is None:
            return {}
        return layer_details(profile, layer, state.baseline, state.record("candidates"))

    def cut(self, state: State, live: dict[str, Any]) -> dict[str, Any]:
        """Which channels are kept, and what that saves; `live` is a threshold being dragged."""
        sources = (
            *(state.importance, state.recipe, state.cut_cost, state.comparison, state.profile),
            *(state.baseline, state.status, live),
        )
        cut: dict[str, Any] = self.once("cut", lambda: packed_cut(state, live, self), *sources)
        return cut

    def once(self, name: str, make: Callable[[], Any], *sources: Any) -> Any:
        """The result of `make`, computed again only for other sources: states come often."""
        before, value = self._cache.get(name, ((), None))
        if len(before) != len(sources) or any(
            old is not new for old, new in zip(before, sources, strict=True)
        ):
            value = make()
            self._cache[name] = (sources, value)
        return value

    def _common(self, state: State) -> dict[str, Any]:
        """The header, the recipe, the worker's progress, and suggested steps."""
        compared = state.comparison
        sources = (
            state.profile,
            state.baseline,
            state.recipe,
            state.record("candidates"),
        )
        return {
            "flops": state.baseline.root.total_flops if state.baseline else None,
            "figures": figures(state),
            "is_partial": state.status == "measuring",
            "recipe": _chips(state),
            "story": story(state),
            "quality": quality(state),
            "others": list(state.others),
            "threads": compared[compared.baseline].threads if compared else None,
            "waiting": state.status == "waiting",
            "queries": queries(state),
            "status": state.status,
            "doing": subject_of(state.status) or state.recipe.label,
            "done": state.done,
            "total": state.total,
            "error": state.error,
            "refused": state.refused.sentence if state.refused else None,
            "allowable": state.refused.number
            if state.refused and state.refused.can_allow
            else None,
            "can_undo": state.can_undo,
            "can_redo": state.can_redo,
            "offers": self.once("offers", lambda: offers(state), *sources),
        }

    def _packed(self, section: Section, *sources: Any) -> dict[str, Any] | None:
        """A view's data, numbered: the page does not draw the same data again, as in a drag."""
        data = section.pack(*sources)
        self._stamps += 1
        return None if data is None else data | {"stamp": self._stamps}


def figures(state: State) -> list[dict[str, Any]]:
    """The headline: each figure before and now."""
    compared = state.comparison
    before = compared[compared.baseline] if compared else None
    now = current(compared) if compared and len(state.recipe) else before
    metric = (compared.metric_name if compared else None) or "metric"
    unit = "%" if compared is None or compared.is_share else ""
    is_less_better = compared is not None and compared.smaller_is_better
    fields = (
        ("memory", "peak_bytes", "B", True),
        ("size", "size_bytes", "B", True),
        (metric, "metric", unit, is_less_better),
    )
    rows: list[tuple[Any, ...]] = [
        (name, getattr(before, field, None), getattr(now, field, None), *how)
        for name, field, *how in fields
    ]
    error = now.relative_error if now is not None and now is not before else None
    rows.append(("output error", None, error, "", True))
    columns = ("name", "before", "now", "unit", "is_less_better")
    return [dict(zip(columns, row, strict=True)) for row in rows]


def story(state: State) -> dict[str, str] | None:
    """The one sentence about the recipe's effect, and its tone; None before the first one."""
    compared = state.comparison
    if compared is None:
        return None
    now = (current(compared) if len(state.recipe) else None) or compared[compared.baseline]
    _, tone, sentence = compared.verdict(now)
    return {"tone": tone, "sentence": sentence}


def quality(state: State) -> dict[str, Any] | None:
    """How quiet the machine was during the measurement that is shown, in words."""
    known = state.comparison.quality if state.comparison else None
    if known is None:
        return None
    layers = [one.quality for one in (state.profile, state.baseline) if one and one.quality]
    rough = dict.fromkeys(phrase for one in layers for phrase in one.disturbances)
    rough = rough if known.is_quiet else {}
    return {
        "state": known.state,
        "label": "Quiet, layers are rough" if rough else known.label,
        "reasons": [list(reason) for reason in known.reasons]
        + [["while layers were timed", phrase] for phrase in rough]
        + drift(state),
        "sentence": known.sentence,
        "advice": "" if known.is_quiet else ADVICE,
        "busiest": [[process.name, process.cores] for process in known.busiest],
    }


def drift(state: State) -> list[list[str]]:
    """Between which latencies the unchanged model was timed, where they lie apart."""
    known = state.results[0].drift_ms if state.results else None
    if known is None:
        return []
    low, high = map(readable_ms, known)
    return [["as it came it drifted", f"from {low} to {high} ms"]]


def queries(state: State) -> dict[str, dict[str, Any]]:
    """The seconds of each query, and whether it runs or waits for its turn."""
    return {
        name: {
            "seconds": query.seconds,
            "is_running": state.status == query.status,
            "is_waiting": name in state.queued,
        }
        for name, query in QUERIES.items()
    }


def _chips(state: State) -> list[dict[str, Any]]:
    reports = (
        state.variant.reports
        if state.variant is not None and state.variant.recipe == state.recipe
        else ()
    )
    notes = [" · ".join(report.notes) for report in reports] or [""] * len(state.recipe)
    return [chip | {"note": note} for chip, note in zip(chips(state.recipe), notes, strict=True)]
