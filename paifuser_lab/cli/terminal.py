"""Print tables and coloured text to a terminal. Built on typer and rich."""

from __future__ import annotations

import sys
import textwrap
from collections.abc import Sequence
from typing import Any

import typer

# columns of text, aligned to the left
TEXT_COLUMNS = (
    "name", "recipe", "model", "device", "note", "best", "layer", "kind", "bound by", "why",
    "change", "what was switched", "refused or not verified",
)  # fmt: skip


def print_table(captions: str | Sequence[str], rows: list[dict[str, str]]) -> None:
    """Print a table of dicts below its captions, as wide as the terminal; numbers to the right."""
    from ..records.text import terminal_width, text_table

    width = terminal_width()
    captions = [captions] if isinstance(captions, str) else captions
    lines = [line for caption in captions for line in textwrap.wrap(caption, width)]
    typer.echo("\n".join([*lines, *text_table(rows, TEXT_COLUMNS, width)]))


def console(*, stderr: bool = False) -> Any:
    """A rich console as wide as the terminal, or 200 columns where output is not a terminal."""
    from rich.console import Console

    width = None if sys.stdout.isatty() else 200
    return Console(stderr=stderr, width=width)


def escaped(text: str) -> str:
    """The text with rich's markup escaped."""
    from rich.markup import escape

    return escape(text)
