"""The section of a comparison: a recipe's measured effect against the baseline."""

from __future__ import annotations

from typing import Any

from ...records import Comparison
from ..section import Section
from ..wire import dumped


def packed_comparison(comparison: Comparison) -> dict[str, Any]:
    """The rows, each with its verdict."""
    data = dumped(comparison)
    for row, packed in zip(comparison.rows, data["rows"], strict=True):
        verdict = comparison.verdict(row)
        packed |= {"word": verdict.word, "tone": verdict.tone}
    return data


SECTION = Section(
    "comparison",
    record=Comparison,
    pack=packed_comparison,
)
