"""The section of an accelerated training loop: its switches, live in `AccelerationMonitor`."""

from __future__ import annotations

from ...records import AccelerationStatus
from ..panel import Monitor
from ..section import chart_section


class AccelerationMonitor(Monitor):
    """A view of `lab.status()`; `lab.show(lab.enable())` is one that follows the training loop."""

    def __init__(self, record: AccelerationStatus) -> None:
        super().__init__("acceleration", record)


SECTION = chart_section(
    "acceleration",
    AccelerationStatus,
    "acceleration of a training loop",
    panel=AccelerationMonitor,
)
