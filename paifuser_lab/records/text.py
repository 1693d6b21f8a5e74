"""Numbers, counts and tables as text: readable units, columns for a terminal, HTML tables."""

from __future__ import annotations

import html
import shutil
import textwrap
from collections.abc import Callable, Collection, Iterable

Row = dict[str, str]
NARROWEST = 16  # characters to which a column of text is wrapped
FIRST = (0.5, 0.34, 0.25)  # shares of the width for the first column; that of fewest parts is taken


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


def readable_ms(value: float) -> str:
    """0.04567 → '0.0457', 4.567 → '4.57', 1234.5 → '1234': three digits, without an exponent."""
    return f"{value:.0f}" if abs(value) >= 1000 else f"{value:#.3g}".rstrip(".")


def readable_rate(number: float) -> str:
    """1234.5 → '1,234'; small numbers keep three digits."""
    return f"{number:,.0f}" if number >= 100 else f"{number:.3g}"


def readable_ratio(value: float, like: float | None = None) -> str:
    """1.311 → '1.31', 4.87 → '4.9', 11.12 → '11.1': as many decimals as a speed-up deserves, or as
    many as another one, `like`, has.
    """
    size = value if like is None else like
    return f"{value:.{2 if size < 2 else 1 if size < 100 else 0}f}"


def text_table(table: list[Row], words: Collection[str], width: int | None = None) -> list[str]:
    """The header and the rows as lines no wider than the terminal; none without rows.

    `words` names the columns of text, which are wrapped first. What is still too wide is folded:
    the remaining columns follow in a second table, with the first column repeated.
    """
    if not table:
        return []
    width = width or terminal_width()
    longest = {key: max(len(key), *(len(row.get(key, "")) for row in table)) for key in table[0]}
    parts = (_folded(_widths(longest, first, words, width), width) for first in FIRST)
    lines: list[str] = []
    for part in min(parts, key=len):
        lines += ([""] if lines else []) + _lines(table, words, part)
    return lines


def terminal_width() -> int:
    """The columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


def _widths(
    longest: dict[str, int], share: float, words: Collection[str], width: int
) -> dict[str, int]:
    """The width of each column: that of its longest text, or less, where wrapping the columns of
    text lets all of them stand side by side. The first has at most a share of the whole.
    """
    first = next(iter(longest))
    widths = longest | {first: min(longest[first], max(len(first), int(width * share)))}
    left = max(width - widths[first] - 2, NARROWEST)
    widths |= {key: min(size, left) for key, size in widths.items() if key != first}
    least = {key: min(size, NARROWEST) if key in words else size for key, size in widths.items()}
    wrapped = dict(widths)
    while (excess := sum(wrapped.values()) + 2 * (len(wrapped) - 1) - width) > 0:
        widest = max(wrapped, key=lambda key: wrapped[key] - least[key])
        if wrapped[widest] == least[widest]:  # wrapping is not enough: the table will be folded
            return widths
        wrapped[widest] = max(least[widest], wrapped[widest] - excess)
    return wrapped


def _folded(widths: dict[str, int], width: int) -> list[dict[str, int]]:
    """The columns in parts that fit, each beginning with the first column."""
    first, *others = widths
    parts = [{first: widths[first]}]
    for key in others:
        part = parts[-1]
        if sum(part.values()) + 2 * len(part) + widths[key] > width:
            parts.append({first: widths[first]})
        parts[-1][key] = widths[key]
    return parts


def _lines(table: list[Row], words: Collection[str], widths: dict[str, int]) -> list[str]:
    lines: list[str] = []
    for row in ({key: key for key in widths}, *table):
        cells = {key: _wrapped(row.get(key, ""), size) for key, size in widths.items()}
        for index in range(max(map(len, cells.values()))):
            texts = ((key, *cells[key][index : index + 1]) for key in widths)
            lines.append(
                "  ".join(
                    "".join(text).ljust(widths[key])
                    if key in words
                    else "".join(text).rjust(widths[key])
                    for key, *text in texts
                ).rstrip()
            )
    return lines


def _wrapped(text: str, width: int) -> list[str]:
    """A cell's lines; its indentation is kept, and a word that is too long is broken."""
    if len(text) <= width:
        return [text]
    indent = text[: len(text) - len(text.lstrip())][: width // 2]
    return textwrap.wrap(text.strip(), width, initial_indent=indent, subsequent_indent=indent)


def html_table(
    captions: Iterable[str],
    table: list[Row],
    words: Collection[str],
    is_bold: Callable[[Row], bool] = lambda row: False,
) -> str:
    """An HTML table with captions; all text is escaped."""
    head = "".join(
        f'<th style="{_style(key, words, is_head=True)}">{html.escape(key)}</th>'
        for key in (table[0] if table else ())
    )
    body = "".join(_html_row(row, words, is_bold=is_bold(row)) for row in table)
    caption = "<br>".join(html.escape(line) for line in captions)
    return (
        f'<div style="overflow-x:auto"><table><caption>{caption}</caption>'
        f"<thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>"
    )


def _html_row(row: Row, words: Collection[str], *, is_bold: bool) -> str:
    weight = ";font-weight:bold" if is_bold else ""
    cells = "".join(
        f'<td style="{_style(key, words)}{weight}">{html.escape(text)}</td>'
        for key, text in row.items()
    )
    return f"<tr>{cells}</tr>"


def _style(column: str, words: Collection[str], *, is_head: bool = False) -> str:
    """A figure stays on its line; the head over it may take several, so that the table is no wider
    than the page.
    """
    if column in words:
        return "text-align:left;min-width:8em"
    return "text-align:right" + ("" if is_head else ";white-space:nowrap")
