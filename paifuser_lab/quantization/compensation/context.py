"""The float model, its future quantized layers, and what techniques may change of both."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ...errors import ShouldStop
from ...model.formats import Quantized, Range
from ...model.graph import Graph
from ...model.replace import replace_layer
from ...model.watch import FAILED, watching
from ...workload import running
from ..calibration import check_finite
from ..factory import quantized_layer
from ..layers.int8 import Int8Layer
from ..layers.layer import QuantizedLayer
from ..neighbours import requantizations
from ..residuals import ResidualPlan, connect_exported, plan_residuals


@dataclass(frozen=True)
class Outcome:
    """The number of layers that a technique changed, and the note on it."""

    count: int
    note: str


@dataclass
class Context:
    """What a technique may change: the model's weights, a layer's integers, or its bias."""

    model: nn.Module
    graph: Graph
    chosen: Mapping[str, str]  # layer → format
    runs: list[Callable[[], Any]]  # calls of the model on calibration data
    spans: Callable[[], dict[str, Range]]  # the input ranges of int8 layers in the present model
    # the ranges of layers' outputs; None: sums are not rounded
    output_ranges: Callable[[list[str]], dict[str, Range]] | None = None
    are_sums_live: bool = False  # sums are rounded in the live model too, not in files alone
    reduced_range: bool | None = None  # of int8 weights; None: as this processor needs
    should_stop: ShouldStop | None = None
    weights: dict[str, Quantized] = field(default_factory=dict)
    shifts: dict[str, Tensor] = field(default_factory=dict)

    def layers(self) -> dict[str, QuantizedLayer]:
        """The quantized layers, with the compensation so far."""
        spans = self.spans()
        layers = {
            layer: quantized_layer(
                self.model.get_submodule(layer),
                name,
                spans.get(layer),
                self.weights.get(layer),
                reduced_range=self.reduced_range,
            )
            for layer, name in self.chosen.items()
        }
        for layer, shift in self.shifts.items():
            bias = layers[layer].bias
            layers[layer].bias = shift if bias is None else bias + shift
        return layers

    def joined(self) -> dict[str, QuantizedLayer]:
        """The same layers; int8 ones pass int8 on where an int8 layer or integer sum reads it."""
        layers = self.layers()
        int8 = {layer: module for layer, module in layers.items() if isinstance(module, Int8Layer)}
        spans = {layer: module.span for layer, module in int8.items()}
        plan, output_ranges = self._sums(spans)
        live = requantizations(self.graph, spans)
        if self.are_sums_live:
            live |= plan.requantizations(spans, output_ranges)
            for layer in plan.consumers:
                int8[layer].is_input_rounded = True
        for layer, requantization in live.items():
            int8[layer].requantization = requantization
        if not self.are_sums_live:
            connect_exported(int8, plan, output_ranges)
        return layers

    def residual_roundings(self) -> tuple[dict[str, Range], int]:
        """The ranges of other modules' outputs that enter integer sums, and the number of sums."""
        spans = self.spans() if self.output_ranges else {}
        plan, output_ranges = self._sums(spans)
        return plan.spans(spans, output_ranges), plan.sums

    def _sums(self, spans: dict[str, Range]) -> tuple[ResidualPlan, dict[str, Range]]:
        plan = plan_residuals(self.graph, spans) if self.output_ranges else ResidualPlan()
        return plan, self.output_ranges(plan.unknown) if self.output_ranges and plan.unknown else {}


@contextmanager
def in_place(model: nn.Module, layers: Mapping[str, nn.Module]) -> Iterator[None]:
    """Replace layers of the model inside the `with` block."""
    before = {layer: model.get_submodule(layer) for layer in layers}
    for layer, new in layers.items():
        replace_layer(model, layer, new)
    try:
        yield
    finally:
        for layer, old in before.items():
            replace_layer(model, layer, old)


Receive = Callable[[str, tuple[Any, ...], Tensor], None]  # layer, its inputs, its output


def read_layer_data(
    model: nn.Module, runs: Iterable[Callable[[], Any]], layers: Iterable[str], receive: Receive
) -> None:
    """Pass the inputs and the output of each call of the layers to `receive`, run after run."""
    selected = set(layers)
    inputs: dict[str, tuple[Any, ...]] = {}

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if layer in selected:
            inputs[layer] = (*args, *kwargs.values())
            check_finite(model, layer, inputs[layer][0])

    def leave(layer: str, output: Any) -> None:
        if layer in selected and output is not FAILED:
            receive(layer, inputs.pop(layer), output)

    with running(model):
        for run in runs:
            with watching(model, enter, leave):
                run()
