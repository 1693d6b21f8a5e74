"""Plan which values are rounded before they enter a sum, and by which module.

A sum is computed on integers where an int8 layer reads it, or where it adds the output of an int8
convolution, which few runtimes can output as floats. Then all its inputs must be rounded: by the
int8 layer that computes them, or by the module that outputs them. Values that other operators read
as floats are never rounded for a sum.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import Tensor, nn

from ..model.formats import Range
from ..model.graph import Graph
from .conversion import fake_quantize, quantize_values
from .layers.int8 import Exported, Int8Layer, Requantization
from .layers.tensor import Int8Tensor
from .neighbours import Clamp, Source, sources_of


@dataclass(frozen=True)
class Rounding:
    """How a value is rounded: to the range of the int8 layers that read it, or of an output."""

    consumers: tuple[str, ...]
    output: str
    clamp: Clamp | None = None
    is_shared: bool = True  # whether the layer itself outputs the rounded values

    def span(self, input_ranges: Mapping[str, Range], output_ranges: Mapping[str, Range]) -> Range:
        """The range, from those of the layers' inputs and of outputs."""
        if self.consumers:
            return input_ranges[self.consumers[0]]
        own = output_ranges[self.output]
        if self.clamp is None:
            return own
        low, high = self.clamp
        return Range(max(own.low, low), own.high if high is None else min(own.high, high))


@dataclass(frozen=True)
class ResidualPlan:
    """The int8 layers and the modules whose outputs are rounded, and the int8 layers that read
    outputs rounded by a module.
    """

    layers: dict[str, Rounding] = field(default_factory=dict)
    modules: dict[str, Rounding] = field(default_factory=dict)
    consumers: frozenset[str] = frozenset()
    sums: int = 0

    @property
    def roundings(self) -> tuple[Rounding, ...]:
        """How the values are rounded."""
        return *self.layers.values(), *self.modules.values()

    @property
    def unknown(self) -> list[str]:
        """The modules whose output ranges are needed."""
        return [rounding.output for rounding in self.roundings if not rounding.consumers]

    def requantizations(
        self, input_ranges: Mapping[str, Range], output_ranges: Mapping[str, Range]
    ) -> dict[str, Requantization]:
        """How the int8 layers pass their output on."""
        return {
            layer: Requantization(
                rounding.span(input_ranges, output_ranges), rounding.clamp, rounding.is_shared
            )
            for layer, rounding in self.layers.items()
        }

    def spans(
        self, input_ranges: Mapping[str, Range], output_ranges: Mapping[str, Range]
    ) -> dict[str, Range]:
        """The ranges to which the modules' outputs are rounded."""
        return {
            module: rounding.span(input_ranges, output_ranges)
            for module, rounding in self.modules.items()
        }


def plan_residuals(graph: Graph, input_ranges: Mapping[str, Range]) -> ResidualPlan:
    """Decide from a run which sums are on integers, given the ranges of int8 layers' inputs."""
    once = {layer for layer in input_ranges if graph.entries[layer] == 1}
    sources = sources_of(graph, once, once)
    chosen = _chosen([source for source in sources if source.summands])
    entering = {id(source): source for total in chosen for source in total.summands}
    shared = {
        id(source): source
        for source in chosen
        if len(source.consumers) > 1 and _can_be_rounded(source, chosen)
    }
    pooled = {
        id(source): source
        for source in sources
        if _is_pooled(source) and _can_be_rounded(source, chosen)
    }
    rounded = (pooled | shared | entering).values()
    layers: dict[str, Rounding] = {}
    modules: dict[str, Rounding] = {}
    consumers: set[str] = set()
    for source in rounded:
        readers, module = (
            _consumers(source, input_ranges),
            _outputting_module(source) if _is_passed_on(source) else None,
        )
        if source.layer is not None:
            layers[source.layer] = Rounding(
                readers, module or source.layer, source.clamp, is_shared=module is None
            )
        if module is not None:
            modules[module] = Rounding(readers, module)
            consumers.update(readers)
    return ResidualPlan(layers, modules, frozenset(consumers), len(chosen))


def _chosen(sums: list[Source]) -> list[Source]:
    """The sums whose summands can all be rounded; dropping one may make others drop out."""
    while True:
        remaining = [
            total
            for total in sums
            if _pays(total) and all(_can_be_rounded(summand, sums) for summand in total.summands)
        ]
        if len(remaining) == len(sums):
            return remaining
        sums = remaining


def _pays(total: Source) -> bool:
    return bool(total.consumers) or any(summand.is_convolution for summand in total.summands)


def _is_pooled(source: Source) -> bool:
    """Whether it is an int8 layer's output that int8 layers read after pooling: rounded before, it
    is pooled in int8.
    """
    return (
        source.layer is not None
        and bool(source.consumers)
        and any(read.picks for read in source.reads)
    )


def _can_be_rounded(source: Source, sums: list[Source]) -> bool:
    """Whether only int8 layers and these sums read it, and some module can round it."""
    are_reads_known = all(
        read.consumer is not None or any(read.into is total for total in sums)
        for read in source.finals
    )
    return are_reads_known and (source.layer is not None or _outputting_module(source) is not None)


def _outputting_module(source: Source) -> str | None:
    """The last module that outputs it before any operator that needs it reads it or selects from
    it; all later reads are of that output.
    """
    candidates = [
        (module, at)
        for module, tensor, at in source.outputs
        if all(read.passes and not read.picks for read in source.reads if read.at < at)
        and all(
            read.tensor == tensor or source.made_at[read.tensor] >= at
            for read in source.reads
            if read.at >= at
        )
    ]
    # the innermost of those that return at the same time
    return max(candidates, key=lambda candidate: candidate[1])[0] if candidates else None


def _is_passed_on(source: Source) -> bool:
    """Whether a module after the layer can round it, closer to where it is read."""
    return source.layer is None or any(read.passes for read in source.reads)


def _consumers(source: Source, input_ranges: Mapping[str, Range]) -> tuple[str, ...]:
    """The int8 layers that read it, where all readers read the same values with the same range."""
    is_one_value = (
        len({read.changes for read in source.finals}) == 1
        and len({input_ranges[consumer] for consumer in source.consumers}) == 1
    )
    return tuple(source.consumers) if is_one_value else ()


@dataclass(frozen=True)
class RoundedOutput:
    """A module's forward hook that rounds its output, everywhere or in exported files alone."""

    span: Range
    only_exported: bool = False

    def __call__(self, module: nn.Module, args: Any, output: Any) -> Any:
        """The output in int8; a compiler or an exporter sees the rounding."""
        if not isinstance(output, Tensor) or not output.is_floating_point():
            return output
        if self.only_exported and not torch.compiler.is_exporting():
            return output
        if torch.compiler.is_compiling():
            return fake_quantize(output, self.span)
        if output.device.type != "cpu":
            return self.span.rounded(output.float()).to(output.dtype)
        if isinstance(output, Int8Tensor) and output.written is None and output.span == self.span:
            return output
        numbers = output.dequantized() if isinstance(output, Int8Tensor) else output
        return Int8Tensor(quantize_values(numbers, self.span), self.span, output.dtype)


def connect_exported(
    layers: Mapping[str, Int8Layer], plan: ResidualPlan, output_ranges: Mapping[str, Range]
) -> None:
    """Connect int8 layers as planned in exported files alone."""
    spans = {layer: module.span for layer, module in layers.items()}
    onward = plan.requantizations(spans, output_ranges)
    for layer in plan.layers.keys() | plan.consumers:
        module = layers[layer]
        requantization = onward.get(layer, module.requantization)
        module.exported = Exported(requantization, layer in plan.consumers)


def round_outputs(
    model: nn.Module, spans: Mapping[str, Range], *, only_exported: bool = False
) -> None:
    """Make these modules round their outputs; those that already do are not changed."""
    done = rounded_outputs(model, only_exported=only_exported)
    for module, span in spans.items():
        if done.get(module) != span:
            model.get_submodule(module).register_forward_hook(RoundedOutput(span, only_exported))


def rounded_outputs(model: nn.Module, *, only_exported: bool = False) -> dict[str, Range]:
    """The modules that round their outputs, live or in exported files alone, and the ranges."""
    return {
        name: hook.span
        for name, module in model.named_modules()
        for hook in module._forward_hooks.values()
        if isinstance(hook, RoundedOutput) and hook.only_exported == only_exported
    }
