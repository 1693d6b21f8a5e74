"""The one latency of the unchanged model that a session shows, whatever measured it."""

from __future__ import annotations

from dataclasses import dataclass
from statistics import median_low
from typing import Any

from ..records import Allocation, Candidates, Comparison, Measurement
from ..records.quality import STATES

Range = tuple[float, float]


@dataclass(frozen=True)
class _Timing:
    """The unchanged model as a comparison timed it."""

    comparison: Comparison
    is_rough: bool  # of a few rounds, until there are more

    @property
    def row(self) -> Measurement:
        return self.comparison[self.comparison.baseline]

    @property
    def ms(self) -> float:
        return self.row.latency_ms or 0.0

    @property
    def spread_ms(self) -> Range:
        return self.row.spread_ms or (self.ms, self.ms)

    @property
    def rank(self) -> tuple[bool, int]:
        """What is measured in full on a quiet machine comes first."""
        quality = self.comparison.quality
        return self.is_rough, STATES.index(quality.state) if quality else 0


class Baseline:
    """The latency of the unchanged model, from every comparison that timed it.

    Each comparison times it anew, and a machine drifts between them: a figure from each would
    contradict the others. The one that is shown is the middle of those that were measured on the
    quietest machine; of two the faster, since others only slow a model down.
    """

    def __init__(self) -> None:
        self._timings: list[_Timing] = []

    def add(self, comparison: Comparison, *, is_rough: bool = False) -> None:
        """Take in what a comparison measured of the unchanged model."""
        self._timings.append(_Timing(comparison, is_rough))

    @property
    def ms(self) -> float | None:
        """The latency; None before the first measurement."""
        return None if self._shown is None else self._shown.ms

    @property
    def comparison(self) -> Comparison | None:
        """The comparison whose timing of the unchanged model is shown."""
        return None if self._shown is None else self._shown.comparison

    @property
    def drift_ms(self) -> Range | None:
        """The fastest and the slowest timing where their rounds lie apart; else None."""
        known = sorted(self._equals, key=lambda timing: timing.ms)
        if not known or known[0].spread_ms[1] >= known[-1].spread_ms[0]:
            return None
        return known[0].ms, known[-1].ms

    def stated(self, record: Any) -> Any:
        """A record with this latency of the unchanged model, in place of the one that was measured
        along with it; itself if that is not a latency of this model here.
        """
        shown = self._shown
        if shown is None or not isinstance(record, Allocation | Candidates | Comparison):
            return record
        is_at_another_batch = isinstance(record, Candidates) and record.batch is not None
        if is_at_another_batch or record.machine != shown.comparison.machine:
            return record
        return record.with_baseline(shown.ms)

    @property
    def _equals(self) -> list[_Timing]:
        """The timings of equal worth, with as many threads as the last one."""
        alike = [one for one in self._timings if one.row.threads == self._timings[-1].row.threads]
        best = min((timing.rank for timing in alike), default=None)
        return [timing for timing in alike if timing.rank == best]

    @property
    def _shown(self) -> _Timing | None:
        known = {timing.ms: timing for timing in self._equals}
        return known[median_low(known)] if known else None
