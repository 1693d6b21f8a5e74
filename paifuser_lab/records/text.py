"""Numbers, counts and tables as text: readable units, columns for a terminal, views in HTML."""

from __future__ import annotations

import shutil
from collections.abc import Collection
from functools import cache
from pathlib import Path
from typing import Any

Row = dict[str, str]
NARROWEST = 16  # characters to which a column of text is wrapped


def readable_bytes(count: int | None) -> str:
    """1536 → '1.54 kB', in powers of 1000 with three digits."""
    return readable_count(count, unit="B")


def counted(count: int, word: str) -> str:
    """1, 'thread' → '1 thread'; 2, 'thread' → '2 threads'."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def readable_share(share: float | None) -> str:
    """0.001 → '0.1%': the fewest decimals that keep a share and its complement within 10%."""
    if share is None:
        return "–"
    percent = 100 * share
    allowed = 0.1 * min(abs(percent), abs(100 - percent))
    decimals = next(
        (count for count in range(6) if abs(round(percent, count) - percent) <= allowed), 6
    )
    return f"{percent:.{decimals}f}%"


def in_figures(value: float, count: int) -> str:
    """1234.5, 2 → '1200': so many figures, without an exponent for what is large."""
    text = f"{value:.{count}g}"
    return f"{float(text):.0f}" if "e+" in text else text


def three_figures(value: float) -> str:
    """0.1234 → '0.123', 1234.5 → '1230': without an exponent for what is large."""
    return in_figures(value, 3)


def readable_count(count: float | None, *, unit: str = "") -> str:
    """11689512 → '11.7 M', 999600 → '1 M'."""
    if count is None:
        return "–"
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= 0.9995 * size:  # what rounds to it has four digits in the unit below
            return f"{three_figures(count / size)} {prefix}{unit}"
    return f"{count:.3g} {unit}".rstrip()


def readable_ms(value: float | None) -> str:
    """0.04567 → '0.0457', 4.567 → '4.57', 1234.5 → '1234': three digits, without an exponent."""
    if value is None:
        return "–"
    return f"{value:.0f}" if abs(value) >= 999.5 else f"{value:#.3g}".rstrip(".")


def readable_rate(number: float | None) -> str:
    """1234.5 → '1,234'; small numbers keep three digits."""
    return or_dash(number, "{:,.0f}" if number is not None and number >= 100 else "{:.3g}")


def readable_ratio(value: float | None, like: float | None = None) -> str:
    """1.311 → '1.31', 11.12 → '11.1': as many decimals as a speed-up deserves, or one `like` it."""
    if value is None:
        return "–"
    size = value if like is None else like
    return f"{value:.{2 if size < 2 else 1 if size < 100 else 0}f}"


def readable_range(ends: tuple[float, float] | None) -> str:
    """1.25, 1.75 → '1.25–1.75', in ms."""
    return "–" if ends is None else "–".join(map(readable_ms, ends))


def or_dash(value: float | None, form: str = "") -> str:
    """A figure as text, with three digits if no form is given; '–' where it is not known."""
    if value is None:
        return "–"
    return form.format(value) if form else three_figures(value)


def known(figures: dict[str, str]) -> dict[str, str]:
    """The figures that are known, by their names."""
    return {name: text for name, text in figures.items() if text not in ("", "–")}


def without_empty(rows: list[Row]) -> list[Row]:
    """The rows without the columns in which none has a figure or a word."""
    used = [key for key in rows[0] if any(row.get(key) not in ("", "–", None) for row in rows)]
    return [{key: row[key] for key in used if key in row} for row in rows]


def text_table(table: list[Row], words: Collection[str], width: int | None = None) -> list[str]:
    """The header and the rows as lines no wider than the terminal; none without rows.

    `words` names the columns of text, which are wrapped. What is still too wide follows in a second
    table, with the first column repeated.
    """
    if not table:
        return []
    from rich.console import Console
    from rich.padding import Padding
    from rich.table import Table

    width = width or terminal_width()
    plain: Any = dict.fromkeys(("markup", "highlight", "emoji", "force_jupyter"), False)
    console = Console(width=width, height=25, color_system=None, **plain)
    longest = {key: max(len(key), *(len(row.get(key, "")) for row in table)) for key in table[0]}
    least = {key: min(size, NARROWEST) if key in words else size for key, size in longest.items()}
    first = next(iter(table[0]))
    least[first] = min(longest[first], max(NARROWEST, width // 3))
    lines: list[str] = []
    for keys in _folded(least, width):
        grid = Table(box=None, pad_edge=False, padding=(0, 2, 0, 0))
        left = width - sum(least[key] + 2 for key in keys if key != first)
        for key in keys:
            justify: Any = "left" if key in words else "right"
            widest = min(longest[key], max(least[key], width // 2), left) if key == first else None
            grid.add_column(key, justify=justify, width=widest, no_wrap=key not in words)
        for row in table:
            name, *others = (row.get(key, "") for key in keys)
            indent = min(len(name) - len(name.lstrip()), width // 6)  # that of a tree's layer
            grid.add_row(Padding(name.strip(), (0, 0, 0, indent), expand=False), *others)
        with console.capture() as capture:
            console.print(grid)
        lines += [*([""] if lines else []), *map(str.rstrip, capture.get().splitlines())]
    return lines


def _folded(least: dict[str, int], width: int) -> list[list[str]]:
    """The columns in parts that fit, each beginning with the first column."""
    first, *others = least
    parts = [[first]]
    for key in others:
        if sum(least[other] + 2 for other in parts[-1]) + least[key] > width:
            parts.append([first])
        parts[-1].append(key)
    return parts


def terminal_width() -> int:
    """The columns of the terminal; 80 where there is none."""
    return shutil.get_terminal_size((80, 24)).columns


@cache
def _views() -> Any:
    from jinja2 import Environment, FileSystemLoader

    loader = FileSystemLoader(Path(__file__).parent)
    settings: dict[str, Any] = {"autoescape": True, "trim_blocks": True, "lstrip_blocks": True}
    return Environment(loader=loader, **settings).get_template("views.html").module


def view(name: str, *values: Any) -> str:
    """A view of `views.html` with these values, whose text is escaped."""
    return str(getattr(_views(), name)(*values))  # as Markup it would escape what is added to it
