"""What is printed to a terminal: tables and coloured sentences. Stands on rich."""

from __future__ import annotations

import sys
from typing import Any

# columns that are read, not compared
WORDS = ("name", "recipe", "model", "device", "note", "best", "layer", "kind", "bound by")


def print_table(title: str, rows: list[dict[str, str]]) -> None:
    """A table, a row a dict; numbers stand to the right."""
    from rich.table import Table

    table = Table(title=title, title_justify="left", box=None, header_style="bold", pad_edge=False)
    for key in rows[0]:
        table.add_column(key, justify="left" if key in WORDS else "right", overflow="fold")
    for row in rows:
        table.add_row(*(escaped(value) for value in row.values()))
    console().print(table)


def console(*, stderr: bool = False) -> Any:
    """Where it is printed; as wide as the window, or wide enough for a log."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 200
    return Console(stderr=stderr, width=width)


def escaped(text: str) -> str:
    """A text in which nothing is taken for colours."""
    from rich.markup import escape

    return escape(text)
