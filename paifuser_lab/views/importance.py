"""Importance of channels: the kept share of each layer, a layer's channels under a threshold."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy
import numpy.typing

from ..records import Importance, LayerImportance
from .picture import (
    Area,
    Axis,
    Boxes,
    Column,
    Handle,
    Labels,
    Mark,
    Panel,
    Picture,
    Rules,
    Tips,
    Values,
)

Floats = numpy.typing.NDArray[Any]
MAX_LAYERS = 40  # of a figure
ROW, HEIGHT = 20, 230  # pixels of a layer's row, and of the channels
MAX_BARS = 150
STEPS = 200  # of a threshold over all layers
TICKS = (0.1, 0.25, 0.5, *(2.0**power for power in range(11)), 4096.0)
APART = 0.1  # of the height


def picture(
    importance: Importance, kept: Mapping[str, int] | None = None, most: int | None = MAX_LAYERS
) -> Picture:
    """The share of each layer that is kept, and its channels: first of one that can lose some."""
    rows = sorted(importance.rows, key=lambda row: not can_lose(row))
    first = rows[0].layer if rows else ""
    by_layer = sorted(importance.rows, key=lambda row: row.layer != first)
    return Picture(
        title=f"{importance.workload}: how much each channel matters",
        label="share of channels kept, by layer",
        sentence=importance.unit,
        note=_how(importance),
        rows=((shares(importance, kept or {}, most),),) if most != 0 else (),
        by_layer=tuple((row.layer, channels(row, (kept or {}).get(row.layer))) for row in by_layer),
    )


def can_lose(row: LayerImportance) -> bool:
    """Whether channels of a layer can go."""
    return len(row.values) > 1 and not row.is_answer


def _how(importance: Importance) -> str:
    """How it was measured, in a line."""
    on = f"{importance.examples} examples" if importance.examples else ""
    stopped = "stopped early: what was found until then" if importance.is_interrupted else ""
    parts = [f"by {importance.method}", on, importance.machine, stopped, *importance.notes]
    return " · ".join(filter(None, parts))


def shares(importance: Importance, kept: Mapping[str, int], most: int | None = None) -> Panel:
    """A bar for each layer, as long as the share of its channels that is kept."""
    rows = importance.rows[:most]
    left_out = len(importance.rows) - len(rows)
    counts = [kept.get(row.layer, row.channels) for row in rows]
    texts = [f"{count}/{row.channels}" for count, row in zip(counts, rows, strict=True)]
    names, ends = [row.layer for row in rows], [1.0] * len(rows)
    below = [int((row.normalised < 0.5).sum()) if row.values else -1 for row in rows]
    figures = (
        Values("channels kept", texts),
        Values("below half the mean", [f"{count:,}" if count >= 0 else "" for count in below]),
    )
    whole = Boxes.in_rows(
        [0.0] * len(rows),
        ends,
        tone="faint",
        is_tint=True,
        key=names,
        tips=Tips(names, [row.note or row.kind for row in rows], figures),
    )
    bars = Boxes.in_rows(
        [0.0] * len(rows),
        [count / row.channels for count, row in zip(counts, rows, strict=True)],
        tone=["main" if can_lose(row) else "faint" for row in rows],
    )
    marks = (whole, bars, Labels(ends, range(len(rows)), texts, tone="ink"))
    label = f"{left_out} more left out" if left_out else ""
    return Panel(
        Axis(0, 1.3, label), Axis.band(names), marks, 16 + ROW * len(rows) + 28 * bool(label)
    )


def channels(row: LayerImportance, kept: int | None = None) -> Picture:
    """A layer's channels over their mean, on an axis of square roots, where small ones are seen."""
    label = f"threshold of {row.layer}"
    if not row.values:
        return Picture(row.layer, label, (), sentence=row.kind, note=row.note or "not judged")
    order = numpy.argsort(-row.normalised, kind="stable")
    values, count = row.normalised[order], len(order)
    # of the bars, each the first of its channels
    edges = numpy.linspace(0, count, min(count, MAX_BARS) + 1).astype(int)
    first = edges[:-1]
    handle = _threshold(row, values, first, kept)
    past = handle.boxes[handle.start]
    tones = [handle.tones[index >= past] for index in range(len(first))]
    floor, heights = [0.0] * len(first), numpy.sqrt(values[first]).tolist()
    bars = Boxes(first.tolist(), edges[1:].tolist(), floor, heights, tone=tones)
    marks: list[Mark] = [bars, Rules("y", [1.0], style="dotted", tone="soft")]
    top = float(values[0])
    if row.errors:
        errors = numpy.asarray(row.errors)[order] / (row.mean or 1.0)
        low, high = (
            numpy.sqrt(numpy.maximum(values + sign * errors, 0))[[*first, first[-1]]].tolist()
            for sign in (-1, 1)
        )
        marks.append(Area(edges.tolist(), low, high, is_tint=True, tone="ink"))
        top += float(errors[0])
    most = 1.06 * top
    ticks = _ticks(most)
    names = tuple(f"{tick:g}×" for tick in ticks)
    up = Axis(0, most**0.5, "", "linear", [tick**0.5 for tick in ticks], names)
    one = "1 channel" if count == 1 else f"{count:,} channels, the most important first"
    panel = Panel(Axis(0, count, f"{row.layer}: {one}"), up, tuple(marks), HEIGHT, handle)
    return Picture(row.layer, label, ((panel,),), sentence=row.kind, note=row.note or "")


def _threshold(row: LayerImportance, values: Floats, bars: Floats, kept: int | None) -> Handle:
    """A stop for each number of channels that is kept, from one to all: half way to the next that
    is not kept, so that no rounding decides.
    """
    thresholds, counts = [0.0], [len(values)]
    if can_lose(row):
        thresholds = [*((values[:-1] + values[1:]) / 2).tolist(), 0.0]
        counts = list(range(1, len(values) + 1))
    last = len(thresholds) - 1
    return Handle(
        at=numpy.sqrt(thresholds).tolist(),
        figures=_figures(row.channels, counts, thresholds, "× the mean"),
        boxes=numpy.searchsorted(bars, counts).tolist(),
        start=last if kept is None else min(kept - 1, last),
    )


def over_all(importance: Importance) -> Handle:
    """A threshold over all layers, in steps that remove equally many channels."""
    free = [numpy.sort(row.normalised) for row in importance.rows if can_lose(row)]
    values = numpy.sort(numpy.concatenate(free or [numpy.zeros(0)]))
    removed = numpy.unique(numpy.linspace(0, len(values), STEPS + 1).astype(int))
    padded = numpy.concatenate([[0.0], values, values[-1:] * 1.002])
    middle = (padded[removed] + padded[removed + 1]) / 2 if len(values) else numpy.zeros(1)
    thresholds = numpy.where(removed == 0, 0, middle).astype(numpy.float32)  # as the page sends it
    counts = numpy.full(len(thresholds), importance.channels - len(values))
    for own in free:
        counts += numpy.maximum(1, len(own) - numpy.searchsorted(own, thresholds))
    stops = thresholds.tolist()
    figures = _figures(importance.channels, counts.tolist(), stops, "× each layer's mean")
    return Handle(stops, figures)


def _figures(whole: int, counts: Column, thresholds: Column, unit: str) -> tuple[Values, Values]:
    """How many are kept at each stop, and where it stands."""
    return Values(f"of {whole:,} channels kept", counts, "rate"), Values(unit, thresholds, "digits")


def _ticks(most: float) -> list[float]:
    """Round values in units of the mean: the mean itself, and others at a distance."""
    kept: list[float] = []
    for value in sorted(TICKS, key=lambda tick: (tick != 1, -tick)):
        near = (abs((value / most) ** 0.5 - (other / most) ** 0.5) < APART for other in [0, *kept])
        if value <= most and not any(near):
            kept.append(value)
    return sorted(kept)
