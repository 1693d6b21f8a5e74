"""Select the units of each group to remove: the least important ones, rounded to widths that suit
the hardware.
"""

from __future__ import annotations

from math import ceil, floor, gcd

import numpy

from ...records import ChannelGroup
from .grouping import Structure
from .scores import Scores

# the least share of a group when groups compete: scores do not see that a layer without channels
# passes nothing on
LEAST_KEPT = 0.1


def kept_units(group: ChannelGroup, share: float, round_to: int) -> int:
    """How many units stay; as many channels as a multiple of `round_to` where the group has at
    least two such steps.
    """
    step = round_to // gcd(round_to, group.unit)
    if group.width >= 2 * step:
        return min(group.width, max(step, step * floor(group.width * share / step + 0.5)))
    return min(group.width, max(1, floor(group.width * share + 0.5)))


def allowed_widths(group: ChannelGroup, round_to: int, fewest: int) -> tuple[int, ...]:
    """The numbers of units, falling, that a group may be left with: steps as in `kept_units`, and
    no fewer than `fewest`.
    """
    step = round_to // gcd(round_to, group.unit)
    step = step if group.width >= 2 * step else 1
    return tuple(
        kept for kept in range(step * ceil(group.width / step) - step, 0, -step) if kept >= fewest
    )


def least(structure: Structure, index: int, scores: Scores, kept: int) -> set[int]:
    """The units of a group that score lowest."""
    order = numpy.argsort(scores, kind="stable")
    return {structure.units[index][position] for position in order[: len(order) - kept].tolist()}


def shares_by_score(
    structure: Structure, groups: list[int], scores: list[Scores], ratio: float
) -> dict[int, float]:
    """The share of each group that stays when the lowest of all their channels go, across
    groups.
    """
    if not groups:
        return {}
    all_scores = numpy.concatenate([scores[index] for index in groups])
    weights = numpy.concatenate(
        [numpy.full(len(scores[index]), structure.groups[index].unit) for index in groups]
    )
    order = numpy.argsort(all_scores, kind="stable")
    removed = order[numpy.cumsum(weights[order]) <= ratio * weights.sum()]
    threshold = all_scores[removed[-1]] if len(removed) else -numpy.inf
    return {index: max(LEAST_KEPT, float((scores[index] > threshold).mean())) for index in groups}
