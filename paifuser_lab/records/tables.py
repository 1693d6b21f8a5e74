"""A record's rows as text in columns and as an HTML table: words stand left, numbers right."""

from __future__ import annotations

import html
from collections.abc import Callable, Collection, Iterable

Row = dict[str, str]


def text_table(table: list[Row], words: Collection[str]) -> list[str]:
    """The head and the rows as lines, none where there are no rows; `words` are the columns that
    are no numbers.
    """
    if not table:
        return []
    widths = {key: max(len(key), *(len(row[key]) for row in table)) for key in table[0]}

    def line(row: Row) -> str:
        return "  ".join(
            row[key].ljust(width) if key in words else row[key].rjust(width)
            for key, width in widths.items()
        ).rstrip()

    return [line(row) for row in ({key: key for key in widths}, *table)]


def html_table(
    captions: Iterable[str],
    table: list[Row],
    words: Collection[str],
    is_bold: Callable[[Row], bool] = lambda row: False,
) -> str:
    """A table with its captions; whatever a model named is text and nothing else."""
    head = "".join(
        f'<th style="{_style(key, words)}">{html.escape(key)}</th>'
        for key in (table[0] if table else ())
    )
    body = "".join(_html_row(row, words, is_bold=is_bold(row)) for row in table)
    caption = "<br>".join(html.escape(line) for line in captions)
    return (
        f"<table><caption>{caption}</caption>"
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table>"
    )


def _html_row(row: Row, words: Collection[str], *, is_bold: bool) -> str:
    weight = ";font-weight:bold" if is_bold else ""
    cells = "".join(
        f'<td style="{_style(key, words)}{weight}">{html.escape(text)}</td>'
        for key, text in row.items()
    )
    return f"<tr>{cells}</tr>"


def _style(column: str, words: Collection[str]) -> str:
    return (
        "text-align:left;min-width:8em"
        if column in words
        else "text-align:right;white-space:nowrap"
    )
