"""Channel ids: one for each position of each weight's dimensions, and which go together."""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

Numbers = NDArray[numpy.int64]
FIXED = 0  # the id of everything that is no channel and has to stay
NOT_CHANNELS = "it is combined with values that are no channels"


@dataclass(frozen=True)
class Span:
    """The consecutive ids of one dimension of one weight; `weight` is empty for a constant that is
    as wide as the tensor it is combined with.
    """

    weight: str
    dimension: int
    start: int
    stop: int


class ChannelIds:
    """A union-find over channel ids that stores why some must stay, and why some were joined."""

    def __init__(self) -> None:
        self.parents: Numbers = numpy.zeros(1, dtype=numpy.int64)
        self.count = 1
        self.spans: list[Span] = []
        self.starts: list[int] = []
        self.fixed: dict[int, str] = {}
        self.tied: dict[int, str] = {}

    def fresh(self, weight: str, dimension: int, size: int) -> Numbers:
        """New ids for a dimension of a weight."""
        start, self.count = self.count, self.count + size
        if self.count > len(self.parents):
            more = numpy.arange(len(self.parents), 2 * self.count, dtype=numpy.int64)
            self.parents = numpy.concatenate([self.parents, more])
        self.spans.append(Span(weight, dimension, start, self.count))
        self.starts.append(start)
        return numpy.arange(start, self.count, dtype=numpy.int64)

    def roots(self, channel_ids: Any) -> Numbers:
        """The representative of each id's class."""
        roots: Numbers = self.parents[channel_ids]
        while True:
            parents: Numbers = self.parents[roots]
            if numpy.array_equal(parents, roots):
                return roots
            roots = parents

    def join(self, first: Numbers, second: Numbers) -> None:
        """Put the ids at equal positions into one class."""
        left, right = self.roots(first).ravel(), self.roots(second).ravel()
        apart = left != right
        pairs = numpy.unique(left[apart] * self.count + right[apart])
        for pair in pairs.tolist():
            self._join(*divmod(pair, self.count))

    def spans_of(self, channel_ids: Numbers) -> set[int]:
        """The indices of the spans that contain these ids."""
        return {
            bisect_right(self.starts, channel_id) - 1
            for channel_id in numpy.unique(channel_ids).tolist()
            if channel_id != FIXED
        }

    def fix(self, channel_ids: Numbers, reason: str) -> None:
        """Mark these classes as not removable."""
        for root in numpy.unique(self.roots(channel_ids)).tolist():
            self.fixed.setdefault(root, reason)

    def tie(self, channel_ids: Numbers, reason: str) -> None:
        """Store why these ids were joined into one class."""
        for root in numpy.unique(self.roots(channel_ids)).tolist():
            self.tied.setdefault(root, reason)

    def _join(self, first: int, second: int) -> None:
        low, high = sorted((self._root(first), self._root(second)))
        if low == high:
            return
        if low == FIXED:
            self.fixed.setdefault(high, NOT_CHANNELS)
            return
        self.parents[high] = low
        for reasons in (self.fixed, self.tied):
            if high in reasons:
                reasons.setdefault(low, reasons[high])

    def _root(self, channel_id: int) -> int:
        while (parent := int(self.parents[channel_id])) != channel_id:
            self.parents[channel_id] = channel_id = int(self.parents[parent])
        return channel_id
