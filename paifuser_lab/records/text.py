"""Numbers, counts and tables as text: readable units, columns for a terminal, HTML tables."""

from __future__ import annotations

import html
from collections.abc import Callable, Collection, Iterable

Row = dict[str, str]


def readable_bytes(count: int | None) -> str:
    """1536 → '1.54 kB', in powers of 1000 with three digits."""
    return readable_count(count, unit="B")


def counted(count: int, word: str) -> str:
    """1, 'thread' → '1 thread'; 2, 'thread' → '2 threads'."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def readable_share(share: float) -> str:
    """0.5 → '50%', 0.001 → '0.1%': with the fewest decimals that keep the share and its complement
    within 10%.
    """
    percent = 100 * share
    allowed = 0.1 * min(abs(percent), abs(100 - percent))
    decimals = next(
        (count for count in range(6) if abs(round(percent, count) - percent) <= allowed), 6
    )
    return f"{percent:.{decimals}f}%"


def readable_count(count: float | None, *, unit: str = "") -> str:
    """11689512 → '11.7 M'."""
    if count is None:
        return "–"
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.3g} {prefix}{unit}"
    return f"{count:.3g} {unit}".rstrip()


def text_table(table: list[Row], words: Collection[str]) -> list[str]:
    """The header and the rows as lines; none without rows. `words` names the columns of text."""
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
    """An HTML table with captions; all text is escaped."""
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
