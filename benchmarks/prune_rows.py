"""The result of pruning one architecture, compared with the same model with zeroed channels."""

from __future__ import annotations

from typing import Literal

from torch import nn

from paifuser_lab.errors import MeasureError
from paifuser_lab.records import Record
from paifuser_lab.workload import Workload
from tests.support.masking import gap, masked

EXACT = 1e-9  # the outputs are compared in float64

Verdict = Literal["exact", "refused", "wrong", "failed", "timed out"]


class PruneRow(Record):
    """One architecture: the share removed, and the error against the model with zeroed channels."""

    name: str
    verdict: Verdict
    removed_channels: float = 0.0
    removed_weights: float = 0.0
    error: float = 0.0
    seconds: float
    note: str = ""


def row_of(work: Workload, model: nn.Module, seconds: float, note: str = "") -> PruneRow:
    """The row of a pruned model; `work` has the original."""
    try:
        error = gap(masked(work.model, model), model, work.inputs)
    except MeasureError as problem:
        return PruneRow(
            name=work.name, verdict="wrong", error=float("inf"), seconds=seconds, note=str(problem)
        )
    return PruneRow(
        name=work.name,
        verdict="exact" if error < EXACT else "wrong",
        removed_channels=1 - _channels(model) / _channels(work.model),
        removed_weights=1 - _weights(model) / _weights(work.model),
        error=error,
        seconds=seconds,
        note=note,
    )


def counts(rows: tuple[PruneRow, ...], verdicts: tuple[Verdict, ...]) -> str:
    """The number of each verdict."""
    return ", ".join(
        f"{sum(row.verdict == verdict for row in rows)} {verdict}" for verdict in verdicts
    )


def _channels(model: nn.Module) -> int:
    """The number of rows of all weights with two or more dimensions."""
    return sum(weight.shape[0] for weight in model.parameters() if weight.ndim > 1)


def _weights(model: nn.Module) -> int:
    return sum(weight.numel() for weight in model.parameters())
