"""The section of an accelerated training loop: its switches, each with its speed-up and its reason;
`AccelerationMonitor` shows them while the loop runs.
"""

from __future__ import annotations

from ...progress import is_static
from ...records import AccelerationStatus
from ...views.acceleration import picture
from ..panel import Panel
from ..section import chart_section, packed


class AccelerationMonitor(Panel):
    """A view of `lab.status()`; `lab.show(lab.enable())` is one that follows the training loop.

    Where widgets cannot run, the record's figure and table stand in its place.
    """

    def __init__(self, record: AccelerationStatus) -> None:
        super().__init__("acceleration", record)

    def __call__(self, record: AccelerationStatus) -> None:
        """Show the status so far."""
        self.record = record
        if not is_static():
            self.data = packed(record)


SECTION = chart_section(
    "acceleration",
    AccelerationStatus,
    picture,
    "acceleration of a training loop",
    panel=AccelerationMonitor,
)
