"""Print tables and coloured text to a terminal. Built on rich."""

from __future__ import annotations

import sys
from typing import Any

# columns of text, aligned to the left
TEXT_COLUMNS = ("name", "recipe", "model", "device", "note", "best", "layer", "kind", "bound by")


def print_table(title: str, rows: list[dict[str, str]]) -> None:
    """Print a table with a row per dict; numbers are aligned to the right."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for key in rows[0]:
        table.add_column(key, justify="left" if key in TEXT_COLUMNS else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escaped(value) for value in row.values()))
    console().print(table)


def console(*, stderr: bool = False) -> Any:
    """A rich console as wide as the terminal, or 200 columns where output is not a terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 200
    return Console(stderr=stderr, width=width)


def escaped(text: str) -> str:
    """The text with rich's markup escaped."""
    from rich.markup import escape

    return escape(text)
