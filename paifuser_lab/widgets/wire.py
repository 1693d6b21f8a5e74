"""Encode values for the page: repeated names as codes, columns of numbers as binary buffers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from ..records import Record


def dumped(record: Record) -> dict[str, Any]:
    """A record as JSON values, with its title."""
    data: dict[str, Any] = record.model_dump(mode="json")
    return data | {"title": getattr(record, "title", repr(record))}


def numbered(values: Iterable[str]) -> dict[str, Any]:
    """The distinct values, and for each row the index of its value."""
    listed = list(values)
    names = list(dict.fromkeys(listed))
    code = {name: index for index, name in enumerate(names)}
    return {
        "names": names,
        "codes": numpy.asarray([code[value] for value in listed], "<u2").tobytes(),
    }


def floats(values: Iterable[float | None]) -> bytes:
    """float32; NaN for None."""
    return numpy.asarray(
        [math.nan if value is None else value for value in values], "<f4"
    ).tobytes()


def integers(values: Iterable[int]) -> bytes:
    """int32."""
    return numpy.asarray(list(values), "<i4").tobytes()


def exact(values: Iterable[float]) -> bytes:
    """float64, like Python's own numbers."""
    return numpy.asarray(list(values), "<f8").tobytes()


def ragged(rows: Iterable[Sequence[int]]) -> dict[str, bytes]:
    """Rows of different lengths: the length of each, and all values."""
    listed = list(rows)
    return {
        "count": integers(len(row) for row in listed),
        "value": integers(value for row in listed for value in row),
    }
