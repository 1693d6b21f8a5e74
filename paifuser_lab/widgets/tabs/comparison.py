"""The section of a comparison: a recipe's measured effect against the baseline."""

from ...records import Comparison
from ..section import chart_section

SECTION = chart_section("comparison", Comparison, "comparison")
