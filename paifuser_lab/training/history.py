"""What a training records of each step, stored in its checkpoint for one that is resumed."""

from __future__ import annotations

from dataclasses import dataclass, field, fields
from typing import NamedTuple

import torch
from torch import Tensor


class StepFacts(NamedTuple):
    """The figures of one step besides its loss."""

    rate: float
    scale: float = 1.0
    overflow: float = 0.0
    underflow: float = 0.0
    norm: float = 0.0
    step_ms: float = 0.0
    wait_ms: float = 0.0
    examples: float = 0.0
    is_lower: bool = False
    is_skipped: bool = False


@dataclass
class History:
    """A row for each step, gradient ranges of some, and the steps at which epochs ended."""

    rows: list[StepFacts] = field(default_factory=list)
    range_steps: list[int] = field(default_factory=list)
    ranges: list[Tensor] = field(default_factory=list)  # (layers, bins) of each of these steps
    epoch_ends: list[int] = field(default_factory=list)
    metrics: list[float] = field(default_factory=list)  # after each epoch, if it stops on them

    @property
    def bad_in_row(self) -> int:
        """The skipped steps since the last that was taken."""
        count = 0
        for row in reversed(self.rows):
            if not row.is_skipped:
                break
            count += 1
        return count

    def tensors(self) -> dict[str, Tensor]:
        """All of it as tensors, for a file."""
        return {
            "rows": torch.tensor([list(map(float, row)) for row in self.rows], dtype=torch.float64),
            "range_steps": torch.tensor(self.range_steps, dtype=torch.int64),
            "ranges": torch.stack(self.ranges) if self.ranges else torch.zeros(0),
            "epoch_ends": torch.tensor(self.epoch_ends, dtype=torch.int64),
            "metrics": torch.tensor(self.metrics, dtype=torch.float64),
        }

    @classmethod
    def of(cls, tensors: dict[str, Tensor]) -> History:
        """The history in these tensors; empty where there are none."""
        if not {member.name for member in fields(cls)} - {"metrics"} <= tensors.keys():
            return cls()
        rows = [
            StepFacts._make([*figures, bool(is_lower), bool(is_skipped)])
            for *figures, is_lower, is_skipped in tensors["rows"].tolist()
        ]
        return cls(
            rows,
            tensors["range_steps"].tolist(),
            list(tensors["ranges"]),
            tensors["epoch_ends"].tolist(),
            tensors.get("metrics", torch.zeros(0)).tolist(),  # earlier files have none
        )
