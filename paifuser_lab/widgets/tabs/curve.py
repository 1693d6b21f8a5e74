"""The section of a batch sweep: throughput, latency and memory over batch sizes."""

from ...records import BatchSweep
from ..section import chart_section

SECTION = chart_section("curve", BatchSweep, "batch sizes")
