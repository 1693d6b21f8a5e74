"""Panels for a notebook: the whole workbench, and each view alone.

section.py          a section: one view, its record, and its requests and queries
tabs/               the sections, one file each
panel.py            the widget of a view
workbench.py        all sections of one model in one widget
presenter.py        what the workbench's page is sent for a state; the widget of a recipe
details.py          facts and reasons of a layer, and suggested steps
recipe_edits.py     edits of a recipe that several sections share
wire.py             encodes values for the page
linker.py           bundles the ES modules of `widgets/` into the one text that a panel sends
"""

from __future__ import annotations

from typing import Any

from ..accelerate import Acceleration
from ..records import StreamReport
from ..variant.recipe import Recipe
from . import tabs as tabs  # registers them
from .panel import Panel
from .presenter import RecipePanel
from .section import section_of, sections
from .tabs.acceleration import AccelerationMonitor
from .tabs.stream import StreamMonitor
from .tabs.training import TrainingMonitor
from .workbench import Workbench

__all__ = ["Panel", "StreamMonitor", "TrainingMonitor", "Workbench", "show"]


def show(record: Any) -> Panel:
    """The widget of a record, a recipe, or what a stream has done so far; it contains a figure for
    places that cannot run widgets. That of `lab.enable()` follows the training loop.
    """
    if isinstance(report := getattr(record, "report", None), StreamReport):
        record = report
    if isinstance(record, Acceleration):
        monitor = AccelerationMonitor(record.status())
        record.follow(monitor)
        return monitor
    if isinstance(record, Recipe):
        return RecipePanel(record)
    section = section_of(record)
    if section is None:
        names = sorted(known.record.__name__ for known in sections() if known.record)
        raise TypeError(
            f"There is no widget for a {type(record).__name__}; there are widgets for "
            f"{', '.join(names)} and Recipe."
        )
    panel: Panel = section.panel(record) if section.panel else Panel(section.name, record)
    return panel
