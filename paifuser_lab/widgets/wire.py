"""Records as the page takes them: names of few kinds are numbered, columns of numbers travel as
buffers.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

import numpy

from ..figures.allocation import achieved_place, place_of
from ..figures.sensitivity import title
from ..formats import NAMES
from ..records import (
    Achieved,
    Allocation,
    AttentionCost,
    Coupling,
    CutCost,
    Estimate,
    FusionMap,
    Importance,
    LayerProfile,
    MemoryTimeline,
    Profile,
    Record,
    Sensitivity,
)
from ..saliency.estimate_channels import cut_note

NUMBERS = (
    "self_ms", "total_ms", "share", "total_flops", "total_parameters", "total_bytes", "peak_bytes",
    "intensity", "gflops", "gbs", "roof_share",
)  # fmt: skip


def packed(record: Record) -> dict[str, Any]:
    """What the view of a record is sent."""
    if isinstance(record, Profile):
        return packed_profile(record)
    if isinstance(record, MemoryTimeline):
        return packed_memory(record)
    if isinstance(record, Sensitivity):
        return packed_sensitivity(record)
    if isinstance(record, Importance):
        return packed_importance(record)
    if isinstance(record, Allocation):
        return packed_allocation(record)
    if isinstance(record, FusionMap):
        return packed_fusions(record)
    if isinstance(record, AttentionCost):
        return packed_attention(record)
    if isinstance(record, Coupling):
        return packed_coupling(record)
    if isinstance(record, CutCost):
        return packed_cut_cost(record)
    data: dict[str, Any] = record.model_dump(mode="json")
    return data | {"title": getattr(record, "title", repr(record))}


def packed_profile(profile: Profile) -> dict[str, Any]:
    """The tree in its order: paths as text, few-valued columns numbered, numbers as float32, where
    NaN is what is not known.
    """
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


def packed_memory(timeline: MemoryTimeline) -> dict[str, Any]:
    """The events as columns; bytes as float64, which holds every one of them exactly."""
    groups, group_of = timeline.groups
    return {
        **timeline.model_dump(include={"workload", "duration_ms", "layers", "note"}, mode="json"),
        "title": timeline.title,
        "sentence": timeline.sentence,
        "groups": list(groups),
        "group_of": numpy.asarray(group_of, "<u2").tobytes(),
        "weights_bytes": numpy.asarray(timeline.weights_bytes, "<f8").tobytes(),
        "time_ms": numpy.asarray(timeline.time_ms, "<f8").tobytes(),
        "change_bytes": numpy.asarray(timeline.change_bytes, "<f8").tobytes(),
        "layer_index": numpy.asarray(timeline.layer_index, "<u2").tobytes(),
        "is_workspace": numpy.asarray(timeline.is_workspace, "u1").tobytes(),
    }


def packed_sensitivity(found: Sensitivity) -> dict[str, Any]:
    """Layers in their order; for each format the estimates as two columns of float32, where NaN is
    what is not known.
    """
    judged = next((one for one in found.methods if one.name == found.method), None)
    agreement = judged.agreement if judged is not None else {}
    scores = [row.scores for row in found.rows]
    return {
        **found.model_dump(
            include={"workload", "machine", "unit", "method", "examples", "is_interrupted"},
            mode="json",
        ),
        "title": title(found),
        "notes": list(found.notes),
        "formats": list(found.formats),
        "choices": [
            name for name in found.formats if name in NAMES
        ],  # what can be run, not only looked at
        "agreement": {name: value for name, value in agreement.items() if math.isfinite(value)},
        "layer": [row.layer for row in found.rows],
        "kind": numbered(row.kind for row in found.rows),
        "note": numbered(row.note or "" for row in found.rows),
        "parameters": numpy.asarray([row.parameters for row in found.rows], "<f4").tobytes(),
        "predicted": {
            name: _estimates([one.get(name, {}).get(found.method) for one in scores])
            for name in found.formats
        },
        "measured": {
            name: _estimates([one.get(name, {}).get("ablation") for one in scores])
            for name in found.formats
        },
    }


def packed_importance(found: Importance) -> dict[str, Any]:
    """Layers in their order; the values of all channels in one column of float32, layer after
    layer, each in its layer's mean.
    """
    means = [row.mean or 1.0 for row in found.rows]
    errors = [numpy.asarray(row.errors or [math.nan] * len(row.values)) for row in found.rows]
    return {
        **found.model_dump(
            include={"workload", "machine", "method", "unit", "examples", "is_interrupted"},
            mode="json",
        ),
        "title": f"{found.workload}: how much each channel matters",
        "cut_by": found.cut_by or cut_note(found.method),
        "notes": list(found.notes),
        "layer": [row.layer for row in found.rows],
        "kind": numbered(row.kind for row in found.rows),
        "note": numbered(row.note or "" for row in found.rows),
        "channels": numpy.asarray([row.channels for row in found.rows], "<i4").tobytes(),
        "judged": numpy.asarray([len(row.values) for row in found.rows], "<i4").tobytes(),
        "is_answer": numpy.asarray([row.is_answer for row in found.rows], "<i4").tobytes(),
        "mean": numpy.asarray([row.mean for row in found.rows], "<f4").tobytes(),
        "value": b"".join(row.normalised.astype("<f4").tobytes() for row in found.rows),
        "error": b"".join(
            (one / mean).astype("<f4").tobytes() for one, mean in zip(errors, means, strict=True)
        ),
    }


def packed_allocation(found: Allocation) -> dict[str, Any]:
    """The points in their order, the frontier before the uniform ones; their numbers as float32,
    where NaN is what is not known.
    """
    points = found.everything
    columns = {
        f"achieved_{name}": [getattr(point.achieved, name, None) for point in points]
        for name in Achieved.model_fields
    }
    columns |= {
        name: [getattr(point, name) for point in points]
        for name in ("loss", "loss_error", "latency_ms", "size_bytes")
    }
    columns["x"] = [place_of(found, point)[0] for point in points]
    columns["achieved_x"] = [(achieved_place(found, point) or (None,))[0] for point in points]
    return {
        **found.model_dump(
            include={"unit", "axis", "limits", "baseline_ms", "baseline_bytes"}, mode="json"
        ),
        "title": found.title,
        "remarks": list(found.remarks),
        "frontier": len(found.points),
        "planned": found.chosen,
        "name": [point.name for point in points],
        "around": [point.around for point in points],
        "counts": [dict(Counter(point.formats.values()).most_common()) for point in points],
        "numbers": {name: _floats(values) for name, values in columns.items()},
    }


def packed_fusions(found: FusionMap) -> dict[str, Any]:
    """The places in their order; their numbers as float32, where NaN is what was not measured."""
    places = found.fusions
    return {
        "title": f"{found.workload}: what runs as one",
        "machine": found.machine,
        "whole": found.whole,
        "notes": list(found.notes),
        "layers": [list(one.layers) for one in places],
        "pattern": numbered(one.pattern for one in places),
        "runs": numbered(one.runs for one in places),
        "standing": numbered(one.standing for one in places),
        "reason": numbered(one.reason for one in places),
        "numbers": {
            name: _floats(getattr(one, name) for one in places)
            for name in ("apart_ms", "fused_ms", "saved_bytes", "error")
        },
    }


def packed_attention(found: AttentionCost) -> dict[str, Any]:
    """The shares as columns, and the error of each layer at each of them, layer after layer; NaN
    where it cannot take part.
    """
    unknown = (math.nan,) * len(found.keeps)
    return {
        **found.model_dump(
            include={"machine", "kind", "metric", "note", "dense_ms", "dense_value"}, mode="json"
        ),
        "title": found.title,
        "keeps": _exact(found.keeps),
        "errors": _exact(found.errors),
        "latency_ms": _exact(found.latency_ms),
        "values": _exact(found.values),
        "layer": [row.layer for row in found.layers],
        "heads": _whole(row.heads for row in found.layers),
        "queries": _whole(row.queries for row in found.layers),
        "keys": _whole(row.keys for row in found.layers),
        "is_causal": _whole(row.is_causal for row in found.layers),
        "share": _floats(row.share for row in found.layers),
        "reason": [row.reason for row in found.layers],
        "layer_errors": _exact(error for row in found.layers for error in (row.errors or unknown)),
    }


def packed_coupling(found: Coupling) -> dict[str, Any]:
    """The groups in their order, and the members of one after those of the other."""
    members = [member for group in found.groups for member in group.members]
    return {
        "title": found.title,
        "workload": found.workload,
        "name": [group.name for group in found.groups],
        "width": _whole(group.width for group in found.groups),
        "unit": _whole(group.unit for group in found.groups),
        "pinned": numbered(group.pinned or "" for group in found.groups),
        "count": _whole(len(group.members) for group in found.groups),
        "layer": numbered(member.layer for member in members),
        "parameter": numbered(member.parameter for member in members),
        "kind": numbered(member.kind for member in members),
    }


def packed_cut_cost(found: CutCost) -> dict[str, Any]:
    """Lengths, weights and layers as columns; of each the lengths that it has, one row after the
    other. Numbers are those of Python.
    """
    stairs = {
        str(place): [list(step) for step in layer.stairs]
        for place, layer in enumerate(found.layers)
        if layer.stairs
    }
    return {
        **found.model_dump(include={"latency_ms", "other_parameters", "other_flops"}),
        "fixed": _whole(length.fixed for length in found.lengths),
        "groups": _ragged([group for group, _ in length.terms] for length in found.lengths),
        "places": _ragged([places for _, places in length.terms] for length in found.lengths),
        "times": _exact(one.times for one in found.weights),
        "weights": _ragged(one.lengths for one in found.weights),
        "flops": _exact(one.flops for one in found.layers),
        "ms": _exact(one.ms for one in found.layers),
        "layers": _ragged(one.lengths for one in found.layers),
        "stairs": stairs,
    }


def numbered(values: Iterable[str]) -> dict[str, Any]:
    """Each different value once, and for each row which of them."""
    listed = list(values)
    names = list(dict.fromkeys(listed))
    place = {name: index for index, name in enumerate(names)}
    return {
        "names": names,
        "codes": numpy.asarray([place[value] for value in listed], "<u2").tobytes(),
    }


def _column(rows: list[LayerProfile], name: str) -> bytes:
    return _floats(getattr(row, name) for row in rows)


def _floats(values: Iterable[float | None]) -> bytes:
    return numpy.asarray(
        [math.nan if value is None else value for value in values], "<f4"
    ).tobytes()


def _whole(values: Iterable[int]) -> bytes:
    return numpy.asarray(list(values), "<i4").tobytes()


def _exact(values: Iterable[float]) -> bytes:
    return numpy.asarray(list(values), "<f8").tobytes()


def _ragged(rows: Iterable[Sequence[int]]) -> dict[str, bytes]:
    """Rows of different lengths: how many each has, and all of them."""
    listed = list(rows)
    return {
        "count": _whole(len(row) for row in listed),
        "value": _whole(one for row in listed for one in row),
    }


def _estimates(found: Sequence[Estimate | None]) -> dict[str, bytes]:
    values = [math.nan if one is None else one.value for one in found]
    errors = [math.nan if one is None or one.error is None else one.error for one in found]
    return {
        "value": numpy.asarray(values, "<f4").tobytes(),
        "error": numpy.asarray(errors, "<f4").tobytes(),
    }


def _shape(row: LayerProfile) -> str:
    return "×".join(map(str, row.output_shapes[0])) if row.output_shapes else ""
