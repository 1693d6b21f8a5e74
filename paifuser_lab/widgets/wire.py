"""Records as the page takes them: names of few kinds are numbered, columns of numbers travel as buffers."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy

from ..records import LayerProfile, Profile, Record

NUMBERS = (
    "self_ms", "total_ms", "share", "total_flops", "total_parameters", "total_bytes", "peak_bytes",
    "intensity", "gflops", "gbs", "roof_share",
)  # fmt: skip


def packed(record: Record) -> dict[str, Any]:
    """What the view of a record is sent."""
    if isinstance(record, Profile):
        return packed_profile(record)
    data: dict[str, Any] = record.model_dump(mode="json")
    return data | {"title": getattr(record, "title", repr(record))}


def packed_profile(profile: Profile) -> dict[str, Any]:
    """The tree in its order: paths as text, few-valued columns numbered, numbers as float32, where NaN is what is not known."""
    rows = [row for _, row in profile.walk()]
    place = {row.layer: index for index, row in enumerate(rows)}
    parents = [place[profile.parent(row.layer)] if row.layer else -1 for row in rows]
    return {
        "title": profile.title,
        "note": profile.failure or profile.accuracy,
        "workload": profile.workload,
        "latency_ms": profile.latency_ms,
        "total_ms": profile.total_ms,
        "layer": [row.layer for row in rows],
        "parent": numpy.asarray(parents, "<i4").tobytes(),
        "kind": numbered(row.kind for row in rows),
        "output": numbered(_shape(row) for row in rows),
        "bound": numbered(row.verdict or "" for row in rows),
        "numbers": {name: _column(rows, name) for name in NUMBERS},
        "ceiling": profile.ceiling.model_dump(),
    }


def numbered(values: Iterable[str]) -> dict[str, Any]:
    """Each different value once, and for each row which of them."""
    listed = list(values)
    names = list(dict.fromkeys(listed))
    place = {name: index for index, name in enumerate(names)}
    return {"names": names, "codes": numpy.asarray([place[value] for value in listed], "<u2").tobytes()}


def _column(rows: list[LayerProfile], name: str) -> bytes:
    values = [getattr(row, name) for row in rows]
    return numpy.asarray([numpy.nan if value is None else value for value in values], "<f4").tobytes()


def _shape(row: LayerProfile) -> str:
    return "×".join(map(str, row.output_shapes[0])) if row.output_shapes else ""
