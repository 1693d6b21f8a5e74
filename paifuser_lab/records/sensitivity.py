"""How much each layer loses in each number format, and how important each of its channels is."""

from __future__ import annotations

import math
from collections.abc import Mapping
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, Literal

import numpy

from ..errors import FileError
from .overlay import save_overlay
from .record import AboutWorkload, Frame, Record, TableRecord, frame_of, frame_of_columns, row_of
from .table import Columns
from .text import counted, readable_count, without_empty

Unit = Literal["loss", "output error"]


class Estimate(Record):
    """A number, with its standard error if it is estimated from samples."""

    value: float
    error: float | None = None
    samples: int | None = None


class Curvature(Record):
    """The Hessian of the loss in one layer's weights."""

    trace: Estimate | None = None
    top_eigenvalues: tuple[float, ...] = ()
    density: tuple[tuple[float, float], ...] = ()  # eigenvalue, share


class LayerSensitivity(Record):
    """One layer: `scores["int8"]["quadratic"]` is an Estimate."""

    layer: str
    kind: str
    parameters: int
    scores: dict[str, dict[str, Estimate]] = {}  # format → method → estimate
    curvature: Curvature | None = None
    note: str | None = None  # why a layer has no scores


class Method(Record):
    """A sensitivity method: its time, and how its ranks agree with the ablation's."""

    name: str
    seconds: float
    samples: int  # batches or probes that were used
    agreement: dict[str, float] = {}  # format → rank correlation with the ablation over the layers


class Sensitivity(TableRecord):
    """A row per layer, a column per format, in `unit`: rise of the loss, or output error."""

    text_columns = ("layer", "kind", "note")

    workload: AboutWorkload
    machine: str
    unit: Unit
    formats: tuple[str, ...]
    method: str  # the method that `predicted` reads
    examples: int
    rows: tuple[LayerSensitivity, ...]
    methods: tuple[Method, ...] = ()
    notes: tuple[str, ...] = ()
    is_interrupted: bool = False
    seed: int = 0  # of the order of the batches, and of the probes
    weights_hash: str | None = None

    def __getitem__(self, layer: str) -> LayerSensitivity:
        return row_of(self.rows, "layer", layer, "layer")

    def predicted(self, layer: str, name: str) -> Estimate | None:
        """The predicted score of a layer in a format."""
        return self[layer].scores.get(name, {}).get(self.method)

    def measured(self, layer: str, name: str) -> Estimate | None:
        """The measured score of a layer in a format; None if it was not requested."""
        return self[layer].scores.get(name, {}).get("ablation")

    def save_overlay(self, path: str | Path, program: Any, name: str = "int8") -> Path:
        """Write a format's score of each layer for Model Explorer, which shows `program`."""
        if name not in self.formats:
            raise FileError(
                f"Nothing is written to {Path(path).name}: there are no scores in {name!r}; take "
                f"one of {', '.join(self.formats)}."
            )
        scores = {row.layer: self.predicted(row.layer, name) for row in self.rows}
        figures = {layer: score.value for layer, score in scores.items() if score is not None}
        return save_overlay(path, program, f"{self.unit} in {name}", figures)

    @property
    def frame(self) -> Frame:
        """A row per layer, a column per format."""
        rows = []
        for row in self.rows:
            estimates = {name: self.predicted(row.layer, name) for name in self.formats}
            rows.append(
                {"layer": row.layer, "kind": row.kind, "parameters": row.parameters}
                | {name: score and score.value for name, score in estimates.items()}
            )
        return frame_of(rows, "layer")

    @property
    def title(self) -> str:
        stopped = " · stopped early" if self.is_interrupted else ""
        unit = "rise of the loss" if self.unit == "loss" else "error of the output"
        what = "measured" if self.method == "ablation" else "predicted"
        return (
            f"{self.workload} on {self.machine} · {what} {unit} by {self.method} · "
            f"{counted(self.examples, 'example')}{stopped}"
        )

    @property
    def remarks(self) -> tuple[str, ...]:
        return (*map(_method_text, self.methods), *self.notes)

    def table(self) -> list[dict[str, str]]:
        """A row per layer, as text; predictions beside measurements, if there are any."""
        rows = [self._readable(row) for row in self.rows] or [{"layer": "nothing was judged"}]
        return without_empty(rows)

    def _readable(self, row: LayerSensitivity) -> dict[str, str]:
        texts = {"layer": row.layer, "kind": row.kind, "weights": readable_count(row.parameters)}
        for name in self.formats:
            texts[name] = _number(self.predicted(row.layer, name))
            if self.method != "ablation":
                texts[f"{name} measured" if self.unit == "loss" else f"{name} loss measured"] = (
                    _number(self.measured(row.layer, name))
                )
        return texts | {"note": row.note or ""}


def _number(estimate: Estimate | None) -> str:
    """An estimate with two digits and its standard error."""
    if estimate is None:
        return ""
    error = "" if estimate.error is None else f" ± {estimate.error:.1g}"
    return f"{estimate.value:.2g}{error}"


def _method_text(method: Method) -> str:
    agreement = ", ".join(f"{name} {value:.2f}" for name, value in method.agreement.items())
    agrees = f" · ranks agree with the ablation: {agreement}" if agreement else ""
    return f"{method.name}: {method.seconds:.1f} s, {counted(method.samples, 'sample')}{agrees}"


Floats = numpy.ndarray[Any, numpy.dtype[numpy.float64]]


class LayerImportance(Record):
    """One layer: a value per output channel and, of several batches, its standard error."""

    layer: str
    kind: str
    channels: int
    values: tuple[float, ...] = ()
    errors: tuple[float, ...] = ()
    is_answer: bool = False  # its channels are the model's output, which cannot be pruned
    note: str | None = None  # why a layer has no values, or keeps all channels

    @property
    def mean(self) -> float:
        """The mean over the channels, by which values are divided to compare layers."""
        return math.fsum(self.values) / len(self.values) if self.values else 0.0

    @cached_property
    def normalised(self) -> Floats:
        """The values over their mean, in the page's fp32; all 1 if every value is 0."""
        if not self.mean:
            return numpy.ones(len(self.values))
        return (numpy.asarray(self.values) / self.mean).astype(numpy.float32).astype(numpy.float64)

    def kept(self, threshold: float) -> int:
        """How many channels a threshold in means keeps: at least one, all if it cannot be cut."""
        if not self.values or self.is_answer:
            return self.channels
        return max(1, int((self.normalised >= threshold).sum()))


class Importance(TableRecord):
    """A row per layer: its mean, and the extremes in units of it; `unit` is of the values."""

    columns: ClassVar[Columns] = {
        "layer": "layer",
        "kind": "kind",
        "channels": "channels",
        "mean": lambda row: f"{row.mean:.2g}" if row.values else "",
        "least": lambda row: f"{row.normalised.min():.2g} ×" if row.values else "",
        "most": lambda row: f"{row.normalised.max():.2g} ×" if row.values else "",
        "below half the mean": lambda row: (
            str(int((row.normalised < 0.5).sum())) if row.values else ""
        ),
        "note": lambda row: row.note or "",
    }
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
        return row_of(self.rows, "layer", layer, "layer")

    @property
    def channels(self) -> int:
        """The number of channels of all layers."""
        return sum(row.channels for row in self.rows)

    def kept(self, threshold: float) -> dict[str, int]:
        """How many channels of each layer a threshold keeps, in units of the layer's mean."""
        return {row.layer: row.kept(threshold) for row in self.rows}

    def ratios(self, kept: Mapping[str, int]) -> dict[str, float]:
        """The ratio of each layer that loses channels, as an option of the step `prune`."""
        all_of = {layer: self[layer].channels for layer in kept}
        lost = {layer: (all_of[layer] - count) / all_of[layer] for layer, count in kept.items()}
        return {layer: ratio for layer, ratio in lost.items() if ratio}

    @property
    def frame(self) -> Frame:
        """A row per channel."""
        names = {"layer": [], "channel": [], "value": [], "error": [], "normalised": []}  # type: dict[str, list[Any]]
        for row in self.rows:
            names["layer"] += [row.layer] * len(row.values)
            names["channel"] += range(len(row.values))
            names["value"] += row.values
            names["error"] += row.errors or [math.nan] * len(row.values)
            names["normalised"] += row.normalised.tolist()
        return frame_of_columns(names).set_index(["layer", "channel"])

    @property
    def title(self) -> str:
        on = f" · {counted(self.examples, 'example')}" if self.examples else ""
        stopped = " · stopped early" if self.is_interrupted else ""
        method = f"importance of channels by {self.method}"
        return f"{self.workload} on {self.machine} · {method}{on}{stopped}"

    @property
    def remarks(self) -> tuple[str, ...]:
        return (self.unit, *self.notes, *([self.cut_by] if self.cut_by else []))

    def table(self) -> list[dict[str, str]]:
        return without_empty(super().table() or [{"layer": "nothing was judged"}])
