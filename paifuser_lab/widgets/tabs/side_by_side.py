"""The section of two profiles, layer by layer."""

from __future__ import annotations

from ...records import SideBySide
from ..section import Section

SECTION = Section(
    "side_by_side",
    record=SideBySide,
    title="Layer by layer",
    tab="results",
    is_wide=True,
)
