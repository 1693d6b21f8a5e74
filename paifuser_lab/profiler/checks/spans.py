"""Arithmetic of time spans, in integer nanoseconds as in torch's profiler."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise

Span = tuple[int, int]  # from, to


def joined(spans: Iterable[Span]) -> list[Span]:
    """The union of the spans, in order and without overlaps."""
    union: list[Span] = []
    for begin, end in sorted(spans):
        if union and begin <= union[-1][1]:
            union[-1] = (union[-1][0], max(union[-1][1], end))
        elif end > begin:
            union.append((begin, end))
    return union


def common(spans: Iterable[Span], others: Iterable[Span]) -> list[Span]:
    """The intersection of both."""
    left, right = joined(spans), joined(others)
    overlaps: list[Span] = []
    i = j = 0
    while i < len(left) and j < len(right):
        begin, end = max(left[i][0], right[j][0]), min(left[i][1], right[j][1])
        if begin < end:
            overlaps.append((begin, end))
        if left[i][1] < right[j][1]:
            i += 1
        else:
            j += 1
    return overlaps


def length(spans: Iterable[Span]) -> int:
    """The length of the union of the spans."""
    return sum(end - begin for begin, end in joined(spans))


def without(spans: Iterable[Span], taken: Iterable[Span]) -> list[Span]:
    """The time of `spans` that lies in none of `taken`."""
    union = joined(spans)
    if not union:
        return []
    cuts = [(union[0][0], union[0][0]), *joined(taken), (union[-1][1], union[-1][1])]
    gaps = [(before[1], after[0]) for before, after in pairwise(cuts) if before[1] < after[0]]
    return common(union, gaps)


def inside(spans: Iterable[Span], around: Iterable[Span]) -> list[Span]:
    """The spans that begin within `around`, unchanged: for counting."""
    regions = joined(around)
    chosen: list[Span] = []
    index = 0
    for begin, end in sorted(spans):
        while index < len(regions) and regions[index][1] <= begin:
            index += 1
        if index < len(regions) and regions[index][0] <= begin:
            chosen.append((begin, end))
    return chosen


def outermost(spans: Iterable[Span]) -> list[Span]:
    """The spans that lie in no other, so that nested operators are not counted again."""
    outer: list[Span] = []
    for begin, end in sorted(spans, key=lambda span: (span[0], -span[1])):
        if not outer or end > outer[-1][1]:
            outer.append((begin, end))
    return outer
