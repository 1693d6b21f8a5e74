"""The section of two profiles, layer by layer."""

from ...records import SideBySide
from ..section import chart_section

SECTION = chart_section(
    "side_by_side",
    SideBySide,
    "side by side",
    title="Layer by layer",
    tab="results",
)
