"""Encode values for the page: repeated names as codes, columns of numbers as binary buffers."""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from dataclasses import fields, is_dataclass
from typing import Any

import numpy

from ..records import Record
from ..records.table import Table
from ..views.picture import Handle, Mark, Picture

MOST_PLAIN = 8  # texts that are sent as they are


def dumped(record: Record) -> dict[str, Any]:
    """A record as JSON values, with its title."""
    data: dict[str, Any] = record.model_dump(mode="json")
    return data | {"title": getattr(record, "title", repr(record))}


def cell(text: str, **more: Any) -> Any:
    """A cell of a table of the page: a text alone, or also a `bar`, `small` below it, a `tone`, a
    `hint`, the request that a press sends (`ask`), how that is called aloud (`spoken`) and looks.
    """
    known = {name: value for name, value in more.items() if value}
    return {"text": text, **known} if known else text


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


def pictured(picture: Picture | Handle) -> dict[str, Any]:
    """A picture or handle for the page: equal columns once, long columns of texts as codes."""
    columns: dict[bytes, int] = {}
    packed: dict[str, Any] = _sent(picture, columns)
    return packed | {"columns": list(columns)}


def _sent(value: Any, columns: dict[bytes, int]) -> Any:
    if isinstance(value, Table):
        return value.packed()
    if is_dataclass(value):
        kind = {"mark": type(value).__name__} if isinstance(value, Mark) else {}
        parts = {field.name: _sent(getattr(value, field.name), columns) for field in fields(value)}
        return kind | parts
    if isinstance(value, str | bytes) or not isinstance(value, Sequence | numpy.ndarray):
        return value
    if len(value) and isinstance(value[0], int | float | numpy.number):
        return {"column": columns.setdefault(floats(value), len(columns))}
    if len(value) > MOST_PLAIN and all(isinstance(text, str) for text in value):
        return numbered(value)
    return [_sent(part, columns) for part in value]
