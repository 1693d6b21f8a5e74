"""The section of a comparison: a recipe's measured effect against the baseline."""

from __future__ import annotations

from typing import Any

from ...records import Comparison
from ...records.quality import is_usable, readable_interval
from ..section import Section
from ..wire import dumped


def packed_comparison(comparison: Comparison) -> dict[str, Any]:
    """The rows, each with its verdict and its likely range in words; an unusable interval is left
    out, since it would be all of the axis.
    """
    data = dumped(comparison)
    for row, packed in zip(comparison.rows, data["rows"], strict=True):
        verdict = comparison.verdict(row)
        packed |= {"word": verdict.word, "tone": verdict.tone}
        if row.speedup_interval is not None:
            packed["likely"] = readable_interval(row.speedup_interval)
            if not is_usable(row.speedup_interval):
                packed["speedup_interval"] = None
    return data


SECTION = Section(
    "comparison",
    record=Comparison,
    pack=packed_comparison,
)
