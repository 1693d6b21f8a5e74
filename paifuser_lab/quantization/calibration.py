"""Calibrate the range of each layer's input, or output, by running the model on data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from torch import Tensor, nn

from ..errors import StepError
from ..model.formats import Range
from ..model.watch import describe, watching

How = Literal["min-max", "percentile", "mse"]
BINS = 2048
CANDIDATES = 80  # clippings that mse tries
TAIL = 1e-5  # the share of the values that percentile clips on either side


@dataclass
class _Histogram:
    """The values of a layer's input or output: the extremes and, from a second run, a histogram."""

    low: float = float("inf")
    high: float = float("-inf")
    counts: Tensor | None = None

    def widen(self, values: Tensor) -> None:
        low, high = values.aminmax()
        self.low, self.high = min(self.low, float(low)), max(self.high, float(high))

    def count(self, values: Tensor) -> None:
        counts = torch.histc(values.float(), BINS, self.low, self.high).cpu()  # as the centres are
        self.counts = counts if self.counts is None else self.counts + counts

    @property
    def centres(self) -> Tensor:
        edges = torch.linspace(self.low, self.high, BINS + 1, dtype=torch.float64)
        return (edges[1:] + edges[:-1]) / 2


def calibrate(
    model: nn.Module,
    runs: Iterable[Callable[[], Any]],
    layers: Iterable[str],
    how: How = "min-max",
    *,
    of: Literal["input", "output"] = "input",
) -> dict[str, Range]:
    """The range of each layer's input, or output, over the runs; none for one that did not run."""
    runs, names = list(runs), set(layers)
    histograms: dict[str, _Histogram] = {}

    def widen(layer: str, values: Tensor) -> None:
        check_finite(model, layer, values)
        histograms.setdefault(layer, _Histogram()).widen(values)

    def count(layer: str, values: Tensor) -> None:
        if histograms[layer].high > histograms[layer].low:
            histograms[layer].count(values)

    _observe(model, runs, names, widen, of)
    if how != "min-max":
        _observe(model, runs, names, count, of)
    clip = _percentile if how == "percentile" else _least_error
    return {
        layer: Range(histogram.low, histogram.high) if histogram.counts is None else clip(histogram)
        for layer, histogram in histograms.items()
    }


Receive = Callable[[str, Tensor], None]


def _observe(
    model: nn.Module,
    runs: list[Callable[[], Any]],
    layers: set[str],
    receive: Receive,
    of: Literal["input", "output"],
) -> None:
    """Pass the layers' inputs or outputs to `receive` before anybody can write into them."""

    def take(layer: str, values: Any) -> None:
        is_tensor = layer in layers and isinstance(values, Tensor)
        if is_tensor and values.is_floating_point() and values.numel():
            receive(layer, values.detach())

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if of == "input":
            take(layer, args[0] if args else next(iter(kwargs.values()), None))

    def leave(layer: str, output: Any) -> None:
        if of == "output":
            take(layer, output)

    for run in runs:
        with watching(model, enter, leave):
            run()


def check_finite(model: nn.Module, layer: str, values: Tensor) -> None:
    """Raise where calibration data is not finite."""
    if not bool(torch.isfinite(values).all()):
        raise StepError(
            f"{describe(model, layer)} receives a NaN or an infinity from the calibration data; "
            "find it there or leave the layer out."
        )


def _percentile(histogram: _Histogram) -> Range:
    """The range without the outermost values."""
    assert histogram.counts is not None
    cumulative = histogram.counts.double().cumsum(0) / histogram.counts.double().sum()
    low = histogram.centres[int(torch.searchsorted(cumulative, TAIL))]
    high = histogram.centres[min(BINS - 1, int(torch.searchsorted(cumulative, 1 - TAIL)))]
    return Range(float(low), float(high))


def _least_error(histogram: _Histogram) -> Range:
    """The range with the least squared error: clipping against finer resolution of the rest."""
    assert histogram.counts is not None
    best, least = Range(histogram.low, histogram.high), float("inf")
    weights, centres = histogram.counts.double(), histogram.centres
    for step in range(CANDIDATES):
        scale = 1 - step / CANDIDATES
        span = Range(histogram.low * scale, histogram.high * scale)
        error = float((weights * (span.rounded(centres) - centres).square()).sum())
        if error < least:
            best, least = span, error
    return best
