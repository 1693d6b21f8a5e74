"""Numbers as a person reads them."""

from __future__ import annotations


def readable_bytes(count: int | None) -> str:
    """1536 → '1.5 kB', in powers of 1000 and with three figures."""
    return readable_count(count, unit="B")


def counted(count: int, word: str) -> str:
    """1, 'thread' → '1 thread'; 2, 'thread' → '2 threads'."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def readable_share(share: float) -> str:
    """0.5 → '50%', 0.001 → '0.1%': as few decimals as are right to a tenth, of what it is and of
    what it leaves.
    """
    percent = 100 * share
    allowed = 0.1 * min(abs(percent), abs(100 - percent))
    places = next(
        (places for places in range(6) if abs(round(percent, places) - percent) <= allowed), 6
    )
    return f"{percent:.{places}f}%"


def readable_count(count: float | None, *, unit: str = "") -> str:
    """11689512 → '11.7 M'."""
    if count is None:
        return "–"
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.3g} {prefix}{unit}"
    return f"{count:.3g} {unit}".rstrip()
