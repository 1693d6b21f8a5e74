"""Cut a chain of layers into stages whose slowest is as quick as it can be within a byte limit."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import accumulate
from math import inf

from ..errors import StepError


def partition(
    costs: Sequence[float],
    stages: int,
    *,
    sizes: Sequence[int] | None = None,
    limit: int | None = None,
    entry_costs: Sequence[float] | None = None,
) -> tuple[int, ...]:
    """Where each stage begins, as indices into the chain; the first is 0.

    The largest sum of costs of a stage is the least that any cut reaches, by dynamic programming
    over the ends of stages. A stage costs `entry_costs` of its first link more, such as the time
    in which its input arrives. No stage's `sizes` add up to more than `limit`.
    """
    count = len(costs)
    if not 1 <= stages <= count:
        raise StepError(
            f"{count} layers in a row cannot be cut into {stages} stages; give 1 to {count}."
        )
    sizes = sizes if sizes is not None else [0] * count
    entry = entry_costs if entry_costs is not None else [0.0] * count
    cost_before, size_before = [0.0, *accumulate(costs)], [0, *accumulate(sizes)]

    def cost(begin: int, end: int) -> float:
        if limit is not None and size_before[end] - size_before[begin] > limit:
            return inf
        return cost_before[end] - cost_before[begin] + (entry[begin] if begin else 0.0)

    best = [0.0] + [inf] * count  # of the layers before an end, in the stages so far
    choices: list[list[int]] = []
    for stage in range(1, stages + 1):
        following, chosen = [inf] * (count + 1), [0] * (count + 1)
        for end in range(stage, count + 1):
            for begin in range(stage - 1, end):
                slowest = max(best[begin], cost(begin, end))
                if slowest < following[end]:
                    following[end], chosen[end] = slowest, begin
        best = following
        choices.append(chosen)
    if best[count] == inf:
        raise StepError(
            f"No cut into {stages} stages keeps each within {limit:,} bytes; the largest layer has "
            f"{max(sizes):,} and all have {sum(sizes):,}: give more stages or a higher limit."
        )
    begins, end = [], count
    for chosen in reversed(choices):
        end = chosen[end]
        begins.append(end)
    return tuple(reversed(begins))


def equal_split(count: int, stages: int) -> tuple[int, ...]:
    """Where each stage begins if all have the same number of layers, give or take one."""
    if not 1 <= stages <= count:
        raise StepError(
            f"{count} layers in a row cannot be cut into {stages} stages; give 1 to {count}."
        )
    return tuple(stage * count // stages for stage in range(stages))
