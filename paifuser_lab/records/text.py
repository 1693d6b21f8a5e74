"""Numbers as a person reads them."""

from __future__ import annotations


def readable_bytes(count: int | None) -> str:
    """1536 → '1.5 kB', in powers of 1000 and with three figures."""
    return readable_count(count, unit="B")


def counted(count: int, word: str) -> str:
    """1, 'thread' → '1 thread'; 2, 'thread' → '2 threads'."""
    return f"{count} {word}{'' if count == 1 else 's'}"


def readable_count(count: float | None, *, unit: str = "") -> str:
    """11689512 → '11.7 M'."""
    if count is None:
        return "–"
    for prefix, size in (("T", 1e12), ("G", 1e9), ("M", 1e6), ("k", 1e3)):
        if abs(count) >= size:
            return f"{count / size:.3g} {prefix}{unit}"
    return f"{count:.3g} {unit}".rstrip()
