"""The section of a batch sweep: throughput and latency over batch sizes."""

from __future__ import annotations

from ...records import BatchSweep
from ..section import Section

SECTION = Section("curve", record=BatchSweep)
