"""The messages of the step prune: why a layer keeps its channels, and the notes on a cut."""

from __future__ import annotations

from collections import defaultdict

from ...model.watch import describe
from ...model.weights import parameter_count
from ...quantization import QuantizedLayer
from ...records import ChannelGroup, counted
from .grouping import CutProblem
from .proof import Proven, Removals
from .scores import described

MOST_NOTES = 12


def why_not_cut(problem: CutProblem, picked: list[str], protected: set[str]) -> str:
    """Why none of the chosen layers can lose a channel."""
    model, layer = problem.model, picked[0]
    for group in problem.groups:
        if matches := set(group.layers) & set(picked):
            layer, reason = (
                sorted(matches)[0],
                group.pinned or ("it is protected" if matches & protected else ""),
            )
            reason = reason or "it is coupled to a protected layer"
            return f"{describe(model, layer)} cannot lose a channel: {reason}."
    if isinstance(module := model.get_submodule(layer), QuantizedLayer):
        return (
            f"{describe(model, layer)} cannot lose a channel: it is in {module.format}; put "
            "'prune' before the step that quantizes it."
        )
    return f"{describe(model, layer)} cannot lose a channel: it has no output channels."


def first_reason(problem: CutProblem, proven: Proven, free: list[int]) -> str:
    """Why no group can lose a channel: the first reason."""
    groups = problem.groups
    for index, reason in proven.refused.items():
        return f"'{groups[index].name}': {reason}"
    if not groups:
        return "no layer has weights in floating point; put 'prune' before 'precision' and 'qat'"
    group = groups[free[0] if free else 0]
    if free:
        width = counted(group.width, "unit")
        return f"'{group.name}' has {width}, of which that share is none; ask for more"
    return f"'{group.name}': {group.pinned or 'it is protected'}"


def cut_notes(
    problem: CutProblem, removals: Removals, proven: Proven, importance: str, before: int
) -> list[str]:
    """What was removed of a model with `before` weights, by which scores; what stays and why."""
    groups, after = problem.groups, parameter_count(problem.model)
    removed = sum(len(removals[index]) * groups[index].unit for index in proven.accepted)
    removable = sum(group.channels for group in groups if group.pinned is None)
    groups_cut = counted(len(proven.accepted), "group")
    summary = f"removed {removed} of {counted(removable, 'channel')} that can go, in {groups_cut}"
    notes = [
        f"{summary}; {after:,} of {before:,} weights are left",
        f"channels are chosen by {described(importance)}",
    ]
    reasons: dict[str, list[ChannelGroup]] = defaultdict(list)
    for index, reason in proven.refused.items():
        reasons[reason].append(groups[index])
    for group in groups:
        if group.pinned:
            reasons[group.pinned].append(group)
    stays = [f"{_named(same)}: {reason}" for reason, same in reasons.items()]
    return notes + [f"stays whole: {line}" for line in stays[:MOST_NOTES]]


def _named(groups: list[ChannelGroup]) -> str:
    names = list(dict.fromkeys(group.name for group in groups))
    return f"'{names[0]}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")
