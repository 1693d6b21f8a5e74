"""The view of a memory snapshot, which is about another run: the workbench has no tab of it."""

from ...records import MemorySnapshot
from ..section import chart_section

SECTION = chart_section("memory_snapshot", MemorySnapshot, "memory snapshot")
