"""The section of a comparison: a recipe's measured effect against the baseline."""

from __future__ import annotations

from ...records import Comparison
from ..section import Section

SECTION = Section(
    "comparison",
    record=Comparison,
    title="Comparison",
    is_wide=True,
    is_kept_while_busy=True,  # the tab must not disappear while the user reads it
    sources=lambda state: (state.comparison,),
)
