"""The section of an accelerated training loop: its switches, each with its speed-up and its reason;
`AccelerationMonitor` shows them while the loop runs.
"""

from __future__ import annotations

from typing import Any

from ...progress import is_static
from ...records import AccelerationStatus
from ..panel import Panel
from ..section import Section, packed


def pack(status: AccelerationStatus) -> dict[str, Any]:
    """The lines above the table, and a row a switch: its cells as text, its figures for the bar."""
    return {
        "title": status.title,
        "captions": list(status.captions[1:]),
        "is_enabled": status.is_enabled,
        "steps": status.steps,
        "rows": [
            {
                "name": row.name,
                "state": row.state,
                "ratio": row.ratio,
                "interval": row.interval,
                "cells": cells,
            }
            for row, cells in zip(status.rows, status.table(), strict=True)
        ],
    }


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


SECTION = Section("acceleration", record=AccelerationStatus, pack=pack, panel=AccelerationMonitor)
