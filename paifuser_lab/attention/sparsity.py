"""How many of the keys are attended to, and the rule that selects them."""

from __future__ import annotations

from dataclasses import dataclass

from ..records import AttentionKind


@dataclass(frozen=True)
class Sparsity:
    """The blocks of keys that a layer attends to: the best at each call, the best on data, or the
    nearest.
    """

    kind: AttentionKind
    keep: float  # up to 1 a share of the blocks, from 2 on their number

    def of(self, blocks: int) -> int:
        """The number of blocks to select."""
        count = round(self.keep * blocks) if self.keep <= 1 else round(self.keep)
        return min(blocks, max(1, count))

    @property
    def label(self) -> str:
        """The label for chips and notes."""
        return (
            f"{self.keep:.0%} of the keys"
            if self.keep <= 1
            else f"{round(self.keep)} blocks of keys"
        )
