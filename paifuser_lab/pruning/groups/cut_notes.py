"""The step prune in words: why a layer keeps its channels, and the notes on a cut."""

from __future__ import annotations

from collections import defaultdict

import torch
from torch import nn

from ...model.watch import describe
from ...quantization import QuantizedLayer
from ...records import ChannelGroup, counted
from .grouping import Structure
from .proof import Proven, Wanted
from .scores import described

MOST_NOTES = 12


def why_not_cut(
    model: nn.Module, structure: Structure, picked: list[str], protected: set[str]
) -> str:
    """Why none of the chosen layers can lose a channel."""
    layer = picked[0]
    for group in structure.groups:
        if found := set(group.layers) & set(picked):
            layer, reason = (
                sorted(found)[0],
                group.pinned or ("it is protected" if found & protected else ""),
            )
            reason = reason or "it goes with a protected one"
            return f"{describe(model, layer)} cannot lose a channel: {reason}."
    if isinstance(found_layer := model.get_submodule(layer), QuantizedLayer):
        return (
            f"{describe(model, layer)} cannot lose a channel: it is in {found_layer.format}; put "
            "'prune' before what rounds it."
        )
    return f"{describe(model, layer)} cannot lose a channel: it makes none."


def first_reason(structure: Structure, proven: Proven, free: list[int]) -> str:
    for index, reason in proven.refused.items():
        return f"'{structure.groups[index].name}': {reason}"
    if not structure.groups:
        return (
            "no layer of it has weights in floating point; put 'prune' before 'precision' and 'qat'"
        )
    group = structure.groups[free[0] if free else 0]
    if free:
        width = counted(group.width, "unit")
        return f"'{group.name}' has {width}, of which that share is none; ask for more"
    return f"'{group.name}': {group.pinned or 'it is protected'}"


def cut_notes(
    structure: Structure,
    wanted: Wanted,
    proven: Proven,
    importance: str,
    before: int,
    after: int,
) -> list[str]:
    """What was removed, by which scores, and what stays for what reason."""
    groups = structure.groups
    gone = sum(len(wanted[index]) * groups[index].unit for index in proven.accepted)
    of = sum(group.channels for group in groups if group.pinned is None)
    groups_cut = counted(len(proven.accepted), "group")
    went = f"removed {gone} of {counted(of, 'channel')} that can go, in {groups_cut}"
    notes = [
        f"{went}; {after:,} of {before:,} weights are left",
        f"channels are chosen by {described(importance)}",
    ]
    reasons: dict[str, list[ChannelGroup]] = defaultdict(list)
    for index, reason in proven.refused.items():
        reasons[reason].append(groups[index])
    for group in groups:
        if group.pinned:
            reasons[group.pinned].append(group)
    stays = [f"{_named(ones)}: {reason}" for reason, ones in reasons.items()]
    return notes + [f"stays whole: {one}" for one in stays[:MOST_NOTES]]


def _named(groups: list[ChannelGroup]) -> str:
    names = list(dict.fromkeys(group.name for group in groups))
    return f"'{names[0]}'" + (f" and {len(names) - 1} more" if len(names) > 1 else "")


def weight_count(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters() if torch.is_tensor(weight))
