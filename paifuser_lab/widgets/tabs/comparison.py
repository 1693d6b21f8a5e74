"""What a recipe changed, measured beside the model as it is."""

from __future__ import annotations

from ...records import Comparison
from ..section import Section

SECTION = Section(
    "comparison",
    record=Comparison,
    title="Comparison",
    is_wide=True,
    is_kept_while_busy=True,  # a tab does not go while somebody reads it
    sources=lambda state: (state.comparison,),
)
