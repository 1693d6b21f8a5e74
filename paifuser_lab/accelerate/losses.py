"""Whether the losses of a loop are still those of its reference: pure functions of the losses."""

from __future__ import annotations

import math
from collections.abc import Sequence
from statistics import median  # of few numbers, much faster than numpy's

BAND_WIDTH, BAND_SHARE, LEAST_REFERENCE, LEAST_RECENT = 4.0, 0.05, 6, 4
WINDOW = 16  # losses that are compared at once after a decision


def leaves_band(reference: Sequence[float], recent: Sequence[float]) -> bool:
    """Whether recent losses are no longer those of the reference: one is not finite, or their
    median is above the reference's by four times its spread and 5% of it.
    """
    if not all(map(math.isfinite, recent)):
        return True
    finite = [loss for loss in reference if math.isfinite(loss)]
    if len(finite) < LEAST_REFERENCE or len(recent) < LEAST_RECENT:
        return False
    centre = median(finite)
    spread = 1.4826 * median(abs(loss - centre) for loss in finite)
    return median(recent) > centre + BAND_WIDTH * spread + BAND_SHARE * abs(centre)


class LossWatch:
    """Watch losses after a decision: against the best window of them so far."""

    def __init__(self) -> None:
        self._best: list[float] = []
        self._recent: list[float] = []
        self._high = 0  # windows in a row that were out of the band

    def see(self, loss: float) -> str:
        """Take in a loss; why the switches in force are to be taken back, or nothing."""
        if not math.isfinite(loss):
            return f"the loss became {loss}"
        self._recent.append(loss)
        if len(self._recent) < WINDOW:
            return ""
        recent, self._recent = self._recent, []
        is_high = leaves_band(self._best, recent)
        self._high = self._high + 1 if is_high else 0
        if not self._best or median(recent) < median(self._best):
            self._best = recent
        if self._high < 2:
            return ""
        self._high = 0
        now, before = median(recent), median(self._best)
        return f"the loss left its band ({now:.3g} after {before:.3g})"
