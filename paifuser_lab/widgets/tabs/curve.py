"""The section of a batch sweep: throughput, latency and memory over batch sizes."""

from ...records import BatchSweep
from ...views.batch_sweep import picture
from ..section import chart_section

SECTION = chart_section("curve", BatchSweep, picture, "batch sizes")
