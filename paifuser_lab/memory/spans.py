"""A buffer as packing sees it: a size, and the operators between which it is alive."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Span:
    """A size and a lifetime, from the operator `begin` to the operator `end`, both included."""

    size: int
    begin: int
    end: int

    def meets(self, other: Span) -> bool:
        """Whether both are alive at some operator."""
        return self.begin <= other.end and other.begin <= self.end
