"""The section of a training: its losses and gradients step by step; `TrainingMonitor` shows them
while it runs.
"""

from __future__ import annotations

from ...progress import is_static
from ...records import TrainingRun
from ...views.training_run import picture
from ..panel import Panel
from ..section import chart_section, packed

BEFORE = "No step has been done yet."


class TrainingMonitor(Panel):
    """A live view of a training: `lab.train(work, monitor=monitor)` with a displayed monitor.

    Where widgets cannot run, the record's figure stands in its place; a training prints lines of
    progress there.
    """

    def __init__(self, record: TrainingRun | None = None) -> None:
        super().__init__("training", record)

    def __call__(self, record: TrainingRun) -> None:
        """Show the record so far."""
        self.record = record
        if not is_static():
            self.data = packed(record)

    def twin(self) -> str:
        return super().twin() if self.record is not None else f"<p>{BEFORE}</p>"

    def brief_twin(self) -> str:
        return super().brief_twin() if self.record is not None else self.twin()


SECTION = chart_section(
    "training", TrainingRun, picture, "training", before=BEFORE, panel=TrainingMonitor
)
