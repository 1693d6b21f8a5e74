"""The float model, its quantized layers to be, and what techniques may change of both."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from torch import Tensor, nn

from ...formats import Quantized, Range
from ...model.graph import Graph
from ...model.replace import replace_layer
from ..factory import quantized_layer
from ..layers.int8 import Int8Layer
from ..layers.layer import QuantizedLayer
from ..neighbours import requantizations
from ..residuals import ResidualPlan, plan_residuals


@dataclass(frozen=True)
class Outcome:
    """The note on what a technique did, and to how many layers."""

    count: int
    note: str


@dataclass
class Context:
    """What a technique may change: the model's weights, a layer's integers, or its bias."""

    model: nn.Module
    graph: Graph
    chosen: Mapping[str, str]  # layer → format
    runs: list[Callable[[], Any]]  # calls of the model on calibration data
    spans: Callable[[], dict[str, Range]]  # the inputs of int8 layers, of the model as it is now
    answers: Callable[[list[str]], dict[str, Range]] | None = (
        None  # what layers output; None: sums are not rounded
    )
    weights: dict[str, Quantized] = field(default_factory=dict)
    shifts: dict[str, Tensor] = field(default_factory=dict)

    def layers(self) -> dict[str, QuantizedLayer]:
        """The quantized layers, with the compensation so far."""
        spans = self.spans()
        layers = {
            layer: quantized_layer(
                self.model.get_submodule(layer), name, spans.get(layer), self.weights.get(layer)
            )
            for layer, name in self.chosen.items()
        }
        for layer, shift in self.shifts.items():
            bias = layers[layer].bias
            layers[layer].bias = shift if bias is None else bias + shift
        return layers

    def joined(self) -> dict[str, QuantizedLayer]:
        """The same layers; int8 ones pass int8 on where a layer or an integer sum reads it."""
        layers = self.layers()
        int8 = {layer: one for layer, one in layers.items() if isinstance(one, Int8Layer)}
        spans = {layer: one.span for layer, one in int8.items()}
        plan, answers = self._sums(spans)
        for layer, requantization in (
            requantizations(self.graph, spans) | plan.requantizations(spans, answers)
        ).items():
            int8[layer].requantization = requantization
        for layer in plan.consumers:
            int8[layer].is_input_rounded = True
        return layers

    def residual_roundings(self) -> tuple[dict[str, Range], int]:
        """The ranges of other modules' outputs that enter integer sums, and the number of sums."""
        spans = self.spans() if self.answers else {}
        plan, answers = self._sums(spans)
        return plan.spans(spans, answers), plan.sums

    def _sums(self, spans: dict[str, Range]) -> tuple[ResidualPlan, dict[str, Range]]:
        plan = plan_residuals(self.graph, spans) if self.answers else ResidualPlan()
        return plan, self.answers(plan.unknown) if self.answers and plan.unknown else {}


@contextmanager
def in_place(model: nn.Module, layers: Mapping[str, nn.Module]) -> Iterator[None]:
    """The model with other layers, inside the `with` block."""
    before = {layer: model.get_submodule(layer) for layer in layers}
    for layer, new in layers.items():
        replace_layer(model, layer, new)
    try:
        yield
    finally:
        for layer, old in before.items():
            replace_layer(model, layer, old)
