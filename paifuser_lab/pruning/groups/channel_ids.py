"""Atoms: one for each place along each dimension of each weight, and which of them have to go
together.
"""

from __future__ import annotations

from bisect import bisect_right
from dataclasses import dataclass
from typing import Any

import numpy
from numpy.typing import NDArray

Numbers = NDArray[numpy.int64]
FIXED = 0  # the atom of whatever is no channel and has to stay
BESIDE = "it stands beside values that are no channels"


@dataclass(frozen=True)
class Span:
    """The atoms of one dimension of one weight, which lie side by side; of no weight where a
    constant is as wide as what it meets.
    """

    weight: str
    dimension: int
    start: int
    stop: int


class Atoms:
    """A union-find over atoms that remembers why some must stay, and why some were tied into
    one.
    """

    def __init__(self) -> None:
        self.parents: Numbers = numpy.zeros(1, dtype=numpy.int64)
        self.count = 1
        self.spans: list[Span] = []
        self.starts: list[int] = []
        self.fixed: dict[int, str] = {}
        self.tied: dict[int, str] = {}

    def fresh(self, weight: str, dimension: int, size: int) -> Numbers:
        """New atoms for a dimension of a weight."""
        start, self.count = self.count, self.count + size
        if self.count > len(self.parents):
            more = numpy.arange(len(self.parents), 2 * self.count, dtype=numpy.int64)
            self.parents = numpy.concatenate([self.parents, more])
        self.spans.append(Span(weight, dimension, start, self.count))
        self.starts.append(start)
        return numpy.arange(start, self.count, dtype=numpy.int64)

    def roots(self, atoms: Any) -> Numbers:
        """The atom that stands for each one's class."""
        found: Numbers = self.parents[atoms]
        while True:
            above: Numbers = self.parents[found]
            if numpy.array_equal(above, found):
                return found
            found = above

    def join(self, one: Numbers, other: Numbers) -> None:
        """Put the atoms at equal places into one class."""
        left, right = self.roots(one).ravel(), self.roots(other).ravel()
        apart = left != right
        pairs = numpy.unique(left[apart] * self.count + right[apart])
        for pair in pairs.tolist():
            self._join(*divmod(pair, self.count))

    def spans_of(self, atoms: Numbers) -> set[int]:
        """Which spans these atoms are of, by number."""
        return {
            bisect_right(self.starts, atom) - 1
            for atom in numpy.unique(atoms).tolist()
            if atom != FIXED
        }

    def fix(self, atoms: Numbers, reason: str) -> None:
        """Nothing in these classes can be removed."""
        for root in numpy.unique(self.roots(atoms)).tolist():
            self.fixed.setdefault(root, reason)

    def tie(self, atoms: Numbers, reason: str) -> None:
        """Say why the classes that these are in now are one."""
        for root in numpy.unique(self.roots(atoms)).tolist():
            self.tied.setdefault(root, reason)

    def _join(self, one: int, other: int) -> None:
        low, high = sorted((self._root(one), self._root(other)))
        if low == high:
            return
        if low == FIXED:
            self.fixed.setdefault(high, BESIDE)
            return
        self.parents[high] = low
        for reasons in (self.fixed, self.tied):
            if high in reasons:
                reasons.setdefault(low, reasons[high])

    def _root(self, atom: int) -> int:
        while (above := int(self.parents[atom])) != atom:
            self.parents[atom] = atom = int(self.parents[above])
        return atom
