"""The importance of each output channel of each layer, and how many a threshold keeps."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

import numpy
from pydantic import model_validator

from .record import Record
from .table import TableRecord
from .text import counted
from .workload_name import AboutWorkload

if TYPE_CHECKING:
    import pandas

Floats = numpy.ndarray[Any, numpy.dtype[numpy.float64]]


class LayerImportance(Record):
    """One layer: a value per output channel and, if estimated from several batches, its standard
    error.
    """

    layer: str
    kind: str
    channels: int
    values: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    is_answer: bool = False  # its channels are the model's output, which cannot be pruned
    note: str | None = None  # why a layer has no values, or keeps all channels

    @model_validator(mode="after")
    def _fits_together(self) -> Self:
        if self.values and len(self.values) != self.channels:
            raise ValueError(
                f"'{self.layer}' has {self.channels} channels and {len(self.values)} values"
            )
        if self.errors and len(self.errors) != len(self.values):
            raise ValueError(
                f"'{self.layer}' has {len(self.values)} values and {len(self.errors)} errors"
            )
        return self

    @property
    def mean(self) -> float:
        """The mean over the channels, by which values are divided to compare layers."""
        return math.fsum(self.values) / len(self.values) if self.values else 0.0

    @cached_property
    def normalised(self) -> Floats:
        """The values divided by their mean, in the fp32 precision that the front end receives; all
        1 if every value is 0.
        """
        if not self.mean:
            return numpy.ones(len(self.values))
        return (numpy.asarray(self.values) / self.mean).astype(numpy.float32).astype(numpy.float64)

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The channels, the most important first."""
        return tuple(int(channel) for channel in numpy.argsort(-self.normalised, kind="stable"))

    def kept(self, threshold: float) -> int:
        """How many channels are at or above a threshold, in units of the layer's mean; at least
        one, and all if the layer cannot be pruned or has no values.
        """
        if not self.values or self.is_answer:
            return self.channels
        return max(1, int((self.normalised >= threshold).sum()))

    def threshold_for(self, kept: int) -> float:
        """A threshold that keeps this many channels, or more if values are equal; half way to the
        next value below.
        """
        if not 1 <= kept <= self.channels:
            raise ValueError(
                f"'{self.layer}' has {self.channels} channels; {kept} of them cannot be kept."
            )
        if kept == len(self.values) or not self.values:
            return 0.0
        high, low = (float(self.normalised[self.order[rank]]) for rank in (kept - 1, kept))
        return (high + low) / 2


class Importance(TableRecord):
    """A row per layer. `unit` describes the values; `row.normalised` makes layers comparable."""

    text_columns = ("layer", "kind", "note")

    workload: AboutWorkload
    machine: str
    method: str
    unit: str
    examples: int
    rows: tuple[LayerImportance, ...]
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False
    seconds: float = 0.0
    seed: int = 0  # of the order of the batches and of random draws
    weights_hash: str | None = None
    # the scores by which the step prune chooses, if they are not these
    cut_by: str = ""

    def __getitem__(self, layer: str) -> LayerImportance:
        for row in self.rows:
            if row.layer == layer:
                return row
        raise KeyError(
            f"no layer '{layer}' was looked at; there are "
            f"{', '.join(row.layer for row in self.rows[:8])} …"
        )

    @property
    def channels(self) -> int:
        """The number of channels of all layers."""
        return sum(row.channels for row in self.rows)

    def threshold_for(self, ratio: float) -> float:
        """The threshold, in units of each layer's mean, that keeps this share of all prunable
        channels.
        """
        if not 0 < ratio <= 1:
            raise ValueError(
                f"A share of {ratio} channels cannot be kept; give one above 0 and up to 1."
            )
        free = [row.normalised for row in self.rows if not row.is_answer]
        known = numpy.sort(numpy.concatenate(free or [numpy.empty(0)]))[::-1]
        count = math.ceil(ratio * len(known))
        return 0.0 if count >= len(known) else float((known[count - 1] + known[count]) / 2)

    def kept(self, *, ratio: float | None = None, threshold: float | None = None) -> dict[str, int]:
        """How many channels of each layer a threshold keeps; `ratio` uses the threshold that keeps
        this share of all.
        """
        if (ratio is None) == (threshold is None):
            raise ValueError(
                "Give either a ratio, the share of all channels to keep, or a threshold in each "
                "layer's mean."
            )
        if threshold is None:
            threshold = self.threshold_for(ratio)  # type: ignore[arg-type]
        return {row.layer: row.kept(threshold) for row in self.rows}

    def ratios(self, kept: Mapping[str, int]) -> dict[str, float]:
        """The ratio of each layer that loses channels, as an option of the step `prune`."""
        lost = {
            layer: (self[layer].channels - count, self[layer].channels)
            for layer, count in kept.items()
        }
        return {layer: gone / channels for layer, (gone, channels) in lost.items() if gone}

    @property
    def frame(self) -> pandas.DataFrame:
        """A row per channel."""
        import pandas

        names = {"layer": [], "channel": [], "value": [], "error": [], "normalised": []}  # type: dict[str, list[Any]]
        for row in self.rows:
            names["layer"] += [row.layer] * len(row.values)
            names["channel"] += range(len(row.values))
            names["value"] += row.values
            names["error"] += row.errors or [math.nan] * len(row.values)
            names["normalised"] += row.normalised.tolist()
        return pandas.DataFrame(names).set_index(["layer", "channel"])

    @property
    def title(self) -> str:
        """The workload, the machine, the method and the number of examples, in a line."""
        on = f" · {counted(self.examples, 'example')}" if self.examples else ""
        stopped = " · stopped early" if self.is_interrupted else ""
        return (
            f"{self.workload} on {self.machine} · importance of channels by "
            f"{self.method}{on}{stopped}"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        """The unit of the values, and notes."""
        return (self.unit, *self.notes, *([self.cut_by] if self.cut_by else []))

    def table(self) -> list[dict[str, str]]:
        """A row per layer, as text."""
        rows = [_readable(row) for row in self.rows] or [{"layer": "nothing was judged"}]
        return [{key: row[key] for key in row if any(other[key] for other in rows)} for row in rows]

    def __repr__(self) -> str:
        layers = counted(len(self.rows), "layer")
        return (
            f"Importance({self.workload}: {counted(self.channels, 'channel')} of {layers} by "
            f"{self.method})"
        )


def _readable(row: LayerImportance) -> dict[str, str]:
    """A layer as text: its mean, and the extremes in units of the mean."""
    known = row.normalised
    return {
        "layer": row.layer,
        "kind": row.kind,
        "channels": str(row.channels),
        "mean": f"{row.mean:.2g}" if row.values else "",
        "least": f"{known.min():.2g} ×" if row.values else "",
        "most": f"{known.max():.2g} ×" if row.values else "",
        "below half the mean": str(int((known < 0.5).sum())) if row.values else "",
        "note": row.note or "",
    }
