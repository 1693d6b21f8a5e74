"""The section of two profiles, layer by layer."""

from ...records import SideBySide
from ...views.side_by_side import picture
from ..section import chart_section

SECTION = chart_section(
    "side_by_side",
    SideBySide,
    picture,
    "side by side",
    title="Layer by layer",
    tab="results",
    is_wide=True,
)
