"""Numbers as cells and sentences of benches show them."""

from __future__ import annotations

from collections.abc import Sequence
from statistics import fmean


def number(value: float) -> str:
    """A number with three significant digits, or to the integer from 1,000 on: 0.0123, 1,740."""
    return f"{value:,.0f}" if abs(value) >= 999.5 else f"{value:.3g}"


def ratio(value: float, interval: Sequence[float] | None = None, unit: str = "") -> str:
    """0.93 (0.92–0.94)."""
    return f"{value:.2f}{unit}" + (f" ({interval[0]:.2f}–{interval[1]:.2f})" if interval else "")


def times(value: float, interval: Sequence[float] | None = None) -> str:
    """1.26 × (1.24–1.29)."""
    return ratio(value, interval, " ×")


def megabytes(size: int | None) -> str:
    """1,400; a dash where it is not known."""
    return "–" if size is None else f"{size / 1e6:,.0f}"


def spread(values: Sequence[float]) -> str:
    """The mean and the range, 0.5 (0.4–0.6); one number where all are the same."""
    low, high = number(min(values)), number(max(values))
    return low if low == high else f"{number(fmean(values))} ({low}–{high})"


def power(value: float, digits: int = 1) -> str:
    """A small error: 3.5e-3."""
    figures, exponent = f"{value:.{digits}e}".split("e")
    return f"{figures}e{int(exponent)}"


def percent(value: float, digits: int = 1) -> str:
    """91.5 %."""
    return f"{100 * value:.{digits}f} %"


def listed(parts: Sequence[str]) -> str:
    """An enumeration: one, two and three."""
    return " and ".join(filter(None, [", ".join(parts[:-1]), *parts[-1:]]))


def minus(text: str) -> str:
    """Replace hyphens by minus signs."""
    return text.replace("-", "−")
