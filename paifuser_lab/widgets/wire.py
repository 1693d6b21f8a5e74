"""Values as the page takes them: few-valued names are numbered, columns of numbers are buffers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from ..records import Record


def dumped(record: Record) -> dict[str, Any]:
    """A record as JSON has it, with its title."""
    data: dict[str, Any] = record.model_dump(mode="json")
    return data | {"title": getattr(record, "title", repr(record))}


def numbered(values: Iterable[str]) -> dict[str, Any]:
    """Each different value once, and for each row which of them."""
    listed = list(values)
    names = list(dict.fromkeys(listed))
    place = {name: index for index, name in enumerate(names)}
    return {
        "names": names,
        "codes": numpy.asarray([place[value] for value in listed], "<u2").tobytes(),
    }


def floats(values: Iterable[float | None]) -> bytes:
    """float32, where NaN is what is not known."""
    return numpy.asarray(
        [math.nan if value is None else value for value in values], "<f4"
    ).tobytes()


def integers(values: Iterable[int]) -> bytes:
    """int32."""
    return numpy.asarray(list(values), "<i4").tobytes()


def exact(values: Iterable[float]) -> bytes:
    """float64, the numbers of Python."""
    return numpy.asarray(list(values), "<f8").tobytes()


def ragged(rows: Iterable[Sequence[int]]) -> dict[str, bytes]:
    """Rows of different lengths: how many each has, and all of them."""
    listed = list(rows)
    return {
        "count": integers(len(row) for row in listed),
        "value": integers(one for row in listed for one in row),
    }
