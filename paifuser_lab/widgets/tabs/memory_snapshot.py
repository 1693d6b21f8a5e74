"""The view of a memory snapshot. It is about a file or another run, so the workbench has no section
of it.
"""

from ...records import MemorySnapshot
from ..section import chart_section

SECTION = chart_section("memory_snapshot", MemorySnapshot, "memory snapshot")
