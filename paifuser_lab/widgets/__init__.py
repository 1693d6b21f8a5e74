"""Panels for a notebook: the whole workbench, and each view alone.

section.py          what a section is: one view, its record, and what it asks for
tabs/               the sections, one file each
panel.py            the widget of a view
recipe_panel.py     the widget of a recipe
workbench.py        all sections of one model in one widget
presenter.py        what the workbench's page is sent for a state
details.py          facts and reasons of a layer, and the steps that would help
recipe_edits.py     edits of a recipe that several clicks lead to
wire.py             values as the page takes them
linker.py           ES modules of `widgets/` as the one text that a panel sends
lifetime.py         how long a widget that works in the background lives
"""

from __future__ import annotations

from ..recipe import Recipe
from ..records import Record
from . import tabs as tabs  # registers them
from .panel import Panel
from .presenter import RecipePanel
from .section import section_of, sections
from .workbench import Workbench

__all__ = ["Panel", "Workbench", "show"]


def show(record: Record | Recipe) -> Panel:
    """The widget of a record, with its figure inside it for where no widget can live."""
    if isinstance(record, Recipe):
        return RecipePanel(record)
    section = section_of(record)
    if section is None:
        known = sorted(one.record.__name__ for one in sections() if one.record)
        raise TypeError(
            f"There is no widget for a {type(record).__name__}; there are widgets for "
            f"{', '.join(known)} and Recipe."
        )
    panel: Panel = section.panel(record) if section.panel else Panel(section.name, record)
    return panel
