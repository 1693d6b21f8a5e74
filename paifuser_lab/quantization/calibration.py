"""The range of what each layer is values, counts by running the model on data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import Any, Literal, TypeGuard

import torch
from torch import Tensor, nn

from ..errors import StepError
from ..formats import Range
from ..model.watch import describe, watching

How = Literal["min-max", "percentile", "mse"]
BINS = 2048
CANDIDATES = 80  # clippings that mse tries
TAIL = 1e-5  # of the values, on either side, that percentile gives up


@dataclass
class _Spread:
    """What a layer was values: its extremes, and in a second run how often each value came."""

    low: float = float("inf")
    high: float = float("-inf")
    counts: Tensor | None = None

    def widen(self, values: Tensor) -> None:
        low, high = values.aminmax()
        self.low, self.high = min(self.low, float(low)), max(self.high, float(high))

    def count(self, values: Tensor) -> None:
        counts = torch.histc(values.float(), BINS, self.low, self.high)
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
    """The range of each layer's input, or output, over the runs; a layer that was not reached has
    none.
    """
    runs, names = list(runs), set(layers)
    observe = _observe_inputs if of == "input" else _observe_outputs
    spreads: dict[str, _Spread] = {}

    def widen(layer: str, values: Tensor) -> None:
        _check(model, layer, values)
        spreads.setdefault(layer, _Spread()).widen(values)

    def count(layer: str, values: Tensor) -> None:
        if spreads[layer].high > spreads[layer].low:
            spreads[layer].count(values)

    observe(model, runs, names, widen)
    if how == "min-max":
        return {layer: Range(one.low, one.high) for layer, one in spreads.items()}
    observe(model, runs, names, count)
    clip = _percentile if how == "percentile" else _least_error
    return {
        layer: clip(one) if one.counts is not None else Range(one.low, one.high)
        for layer, one in spreads.items()
    }


Receive = Callable[[str, Tensor], None]


def _observe_inputs(
    model: nn.Module, runs: list[Callable[[], Any]], layers: set[str], receive: Receive
) -> None:
    """Hand over what the layers are values, run after run, before they can write into it."""

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        values = args[0] if args else next(iter(kwargs.values()), None)
        if layer in layers and _has_numbers(values):
            receive(layer, values.detach())

    for run in runs:
        with watching(model, enter, lambda layer, output: None):
            run()


def _observe_outputs(
    model: nn.Module, runs: list[Callable[[], Any]], layers: set[str], receive: Receive
) -> None:
    """Hand over what the layers output, run after run, before others can write into it."""

    def leave(layer: str, output: Any) -> None:
        if layer in layers and _has_numbers(output):
            receive(layer, output.detach())

    for run in runs:
        with watching(model, lambda layer, args, kwargs: None, leave):
            run()


def _has_numbers(value: Any) -> TypeGuard[Tensor]:
    return isinstance(value, Tensor) and value.is_floating_point() and value.numel() > 0


def _check(model: nn.Module, layer: str, values: Tensor) -> None:
    if not bool(torch.isfinite(values).all()):
        raise StepError(
            f"{describe(model, layer)} receives a NaN or an infinity from the calibration data; "
            "find it there or leave the layer out."
        )


def _percentile(one: _Spread) -> Range:
    """Without the few values farthest out."""
    assert one.counts is not None
    share = one.counts.double().cumsum(0) / one.counts.double().sum()
    low = one.centres[int(torch.searchsorted(share, TAIL))]
    high = one.centres[min(BINS - 1, int(torch.searchsorted(share, 1 - TAIL)))]
    return Range(float(low), float(high))


def _least_error(one: _Spread) -> Range:
    """The clipping that loses least in all: what is cut off against the finer resolution of the
    rest.
    """
    assert one.counts is not None
    best, least = Range(one.low, one.high), float("inf")
    weights, centres = one.counts.double(), one.centres
    for step in range(CANDIDATES):
        kept = 1 - step / CANDIDATES
        span = Range(one.low * kept, one.high * kept)
        error = float((weights * (span.rounded(centres) - centres).square()).sum())
        if error < least:
            best, least = span, error
    return best
