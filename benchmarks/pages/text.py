"""Formats numbers and paragraphs as the pages show them."""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable, Sequence

WIDTH = 120
CODE = re.compile(r"`[^`]*`")


def paragraph(*sentences: str) -> str:
    """Sentences as one paragraph, without those that are empty; code stays in one line."""
    text = CODE.sub(
        lambda code: code[0].replace(" ", "\0"),
        " ".join(sentence for sentence in sentences if sentence),
    )
    return textwrap.fill(text, WIDTH, break_long_words=False, break_on_hyphens=False).replace(
        "\0", " "
    )


def table(header: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table."""
    lines = [header, ["---"] * len(header), *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines)


def number(value: float) -> str:
    """A number with three significant digits, or to the integer from 1,000 on: 0.0123, 1,740."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def ratio(value: float, interval: tuple[float, float] | None = None) -> str:
    """0.93 (0.92–0.94)."""
    return f"{value:.2f}" + (f" ({interval[0]:.2f}–{interval[1]:.2f})" if interval else "")


def times(value: float, interval: tuple[float, float] | None = None) -> str:
    """1.26 × (1.24–1.29)."""
    return f"{value:.2f} ×" + (f" ({interval[0]:.2f}–{interval[1]:.2f})" if interval else "")


def power(value: float, digits: int = 1) -> str:
    """A small error: 3.5e-3."""
    figures, exponent = f"{value:.{digits}e}".split("e")
    return f"{figures}e{int(exponent)}"


def percent(value: float, digits: int = 1) -> str:
    """91.5 %."""
    return f"{100 * value:.{digits}f} %"


def listed(parts: Sequence[str]) -> str:
    """An enumeration: one, two and three."""
    return parts[0] if len(parts) == 1 else f"{', '.join(parts[:-1])} and {parts[-1]}"


def minus(text: str) -> str:
    """Replace hyphens by minus signs."""
    return text.replace("-", "−")
