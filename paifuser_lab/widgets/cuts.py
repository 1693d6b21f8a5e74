"""A cut in the workbench: what is asked for layer by layer, and what it did where that can be told
apart.
"""

from __future__ import annotations

from typing import Any

from ..pruning.groups.scores import default_importance
from ..recipe import Recipe
from ..records import Comparison, Measurement
from ..saliency.estimate_channels import cut_note
from ..session.state import State
from ..workload import Workload

BY_NAME = {
    "layers",
    "importance",
    "seed",
    "protect",
    "repair",
}  # another option has the step choose layers by itself
PATTERN = frozenset("*?[")


def cut_shown(state: State) -> dict[str, Any]:
    """What is removed of which layer, in the order in which it counts, whether that is all that is
    cut, and what it did.
    """
    steps = [step for step in state.recipe if step.kind == "prune"]
    named = [
        (layer, ratio) for step in steps for layer, ratio in step.options.get("layers", {}).items()
    ]
    is_plain = all(PATTERN.isdisjoint(layer) for layer, _ in named)
    is_foretold = (
        is_plain and len(steps) <= 1 and all(step.options.keys() <= BY_NAME for step in steps)
    )
    return {
        "removed": [list(pair) for pair in named],
        "is_foretold": is_foretold,
        "others": _others(state.recipe),
        "achieved": achieved_cut(state) if named and is_foretold else None,
    }


def cut_by(state: State, work: Workload) -> str:
    """How the step prune cuts by the values that are shown, or by which others; '' where none are
    shown.

    A step in the recipe says by which; without one it is what a drag would choose.
    """
    if state.importance is None:
        return ""
    steps = [step for step in state.recipe if step.kind == "prune"]
    shown = state.importance.method
    cut = steps[-1].options.get("importance", default_importance(work)) if steps else shown
    return cut_note(shown, cut)


def achieved_cut(state: State) -> dict[str, Any] | None:
    """The recipe with the cut in it beside the model as it is; None as long as nothing was
    measured.
    """
    compared = state.comparison
    now = _variant(compared) if compared is not None else None
    if compared is None or now is None:
        return None
    before = compared[compared.baseline]
    told = {
        "parameters": (before.parameters, now.parameters),
        "latency_ms": (before.latency_ms, now.latency_ms),
    }
    told |= {"metric": (before.metric, now.metric)}
    if (
        state.profile is not None
        and state.baseline is not None
        and state.profile is not state.baseline
    ):
        told |= {"flops": (2 * state.baseline.root.total_macs, 2 * state.profile.root.total_macs)}
    return {
        "before": {name: pair[0] for name, pair in told.items()},
        "now": {name: pair[1] for name, pair in told.items()},
        "metric_name": compared.metric_name,
    }


def _variant(compared: Comparison) -> Measurement | None:
    return next((row for row in compared.rows if row.steps), None)


def _others(recipe: Recipe) -> int:
    """How many steps there are beside the cut, which have their part in what was measured."""
    return sum(step.kind != "prune" for step in recipe)
