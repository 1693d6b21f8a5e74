"""The section of a training: its losses and gradients, live in `TrainingMonitor`."""

from __future__ import annotations

from ...records import TrainingRun
from ..panel import Monitor
from ..section import chart_section


class TrainingMonitor(Monitor):
    """A live view of a training: `lab.train(work, monitor=monitor)` with a displayed monitor.

    Where widgets cannot run, the record's figure stands in its place; a training prints lines of
    progress there.
    """

    before = "No step has been done yet."

    def __init__(self, record: TrainingRun | None = None) -> None:
        super().__init__("training", record)


SECTION = chart_section(
    "training",
    TrainingRun,
    "training",
    before=TrainingMonitor.before,
    panel=TrainingMonitor,
)
