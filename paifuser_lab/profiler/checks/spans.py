"""Stretches of time: joined, cut out of each other, added up. Whole nanoseconds, as torch's
profiler gives them.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

Span = tuple[int, int]  # from, to


def joined(spans: Iterable[Span]) -> list[Span]:
    """The same time without overlaps, in order."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin <= found[-1][1]:
            found[-1] = (found[-1][0], max(found[-1][1], end))
        elif end > begin:
            found.append((begin, end))
    return found


def common(some: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """The time that lies in both."""
    left, right = joined(some), joined(others)
    found: list[Span] = []
    i = j = 0
    while i < len(left) and j < len(right):
        begin, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if begin < end:
            found.append((begin, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return found


def length(spans: Iterable[Span]) -> int:
    """How long they are together, what overlaps counted once."""
    return sum(end - begin for begin, end in joined(spans))


def without(spans: Iterable[Span], taken: Iterable[Span]) -> list[Span]:
    """The time of the first that lies in none of the second."""
    kept = joined(spans)
    if not kept:
        return []
    cuts = [(kept[0][0], kept[0][0]), *joined(taken), (kept[-1][1], kept[-1][1])]
    gaps = [(before[1], after[0]) for before, after in pairwise(cuts) if before[1] < after[0]]
    return common(kept, gaps)


def inside(spans: Iterable[Span], around: Iterable[Span]) -> list[Span]:
    """Those that begin within the time of the second, as they are: for counting."""
    regions = joined(around)
    found: list[Span] = []
    place = 0
    for begin, end in sorted(spans):
        while place < len(regions) and regions[place][1] <= begin:
            place += 1
        if place < len(regions) and regions[place][0] <= begin:
            found.append((begin, end))
    return found


def outermost(spans: Iterable[Span]) -> list[Span]:
    """Those that lie in no other: what an operator calls on its way is not counted again."""
    found: list[Span] = []
    for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not found or end > found[-1][1]:
            found.append((begin, end))
    return found
