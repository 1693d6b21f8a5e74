"""How much of the keys is attended to, and by what rule."""

from __future__ import annotations

from dataclasses import dataclass

from ..records import AttentionKind


@dataclass(frozen=True)
class Sparsity:
    """The blocks of keys that a layer attends to: the best at each call, the best once and for all,
    or the nearest.
    """

    kind: AttentionKind
    keep: float  # up to 1 a share of the blocks, from 2 on their number

    def of(self, blocks: int) -> int:
        """How many of so many blocks."""
        wanted = round(self.keep * blocks) if self.keep <= 1 else round(self.keep)
        return min(blocks, max(1, wanted))

    @property
    def label(self) -> str:
        """As a chip and a note say it."""
        return (
            f"{self.keep:.0%} of the keys"
            if self.keep <= 1
            else f"{round(self.keep)} blocks of keys"
        )
