"""What estimators work on: layers, batches, and temporary changes of layers: other weights, other
inputs, the changes that rounding makes.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn
from torch.nn.attention import SDPBackend, sdpa_kernel

from ..errors import MeasureError, first_line
from ..model.formats import Range, format_of, fp8_rounded, rounded
from ..model.watch import describe, first_nan, has_nan, watching
from ..workload import Workload, running
from ..workload.data import Batch as Batch
from ..workload.data import SampledBatches
from ..workload.seeding import preserve_rng, seed_all

Change = Callable[[Tensor], Tensor]
RANGE_BATCHES = 16  # to find the ranges of int8 layers' inputs


class Key(NamedTuple):
    """A layer in a format; an empty format means the layer itself."""

    layer: str
    format: str


@dataclass(frozen=True)
class Layer:
    """A layer with a weight; `channel` is the dimension of its output channels, which have a scale
    each.
    """

    name: str
    module: nn.Module
    channel: int
    parameter: str = "weight"

    @property
    def weight(self) -> Tensor:
        """Its values, detached from any graph."""
        return self.module._parameters[self.parameter].detach()  # type: ignore[union-attr]


@dataclass
class Subject:
    """A workload with the layers and formats to estimate; every change of it is undone at the end
    of its context.
    """

    work: Workload
    layers: dict[str, Layer]
    formats: tuple[str, ...]
    batches: SampledBatches
    seed: int = 0
    error: float = 0.2  # the requested relative standard error
    ranges: dict[str, Range] = field(default_factory=dict)
    _changes: dict[Key, Tensor] = field(default_factory=dict)

    def output(self, batch: Batch) -> Any:
        """The model's output; a model that draws random numbers draws the same ones each time."""
        seed_all(self.work.device, self.seed, batch.number or 0)
        try:
            return batch.inputs.clone()(self.work.model)
        except Exception as error:
            where = (
                f"on batch {batch.number} of its data"
                if batch.target is not None
                else "on its inputs"
            )
            raise MeasureError(
                f"{self.work.name} fails {where}: {first_line(error).rstrip('.')}; fix that batch."
            ) from error

    def checked_output(self, batch: Batch) -> Any:
        """The output of the unchanged model; raises where it holds a NaN."""
        output = self.output(batch)
        if has_nan(output):
            model = self.work.model
            where = describe(model, first_nan(model, lambda: self.output(batch)) or "")
            raise MeasureError(
                f"{self.work.name} outputs NaN on batch {batch.number}, first at {where}; fix "
                "that layer."
            )
        return output

    def loss(self, batch: Batch) -> Tensor:
        """The loss on a batch, with its graph."""
        output = self.output(batch)
        try:
            loss = self.work.loss(output, batch.target)  # type: ignore[misc]
        except Exception as error:
            raise MeasureError(
                f"the loss of {self.work.name} fails on batch {batch.number}: "
                f"{first_line(error).rstrip('.')}; "
                "it is called as loss(output, target)."
            ) from error
        loss = torch.as_tensor(loss)
        if loss.numel() != 1:
            raise MeasureError(
                f"the loss of {self.work.name} has shape {tuple(loss.shape)}; let it return one "
                "number."
            )
        return loss.reshape(())

    def checked_loss(self, batch: Batch) -> float:
        """The loss of the unchanged model as a float; raises where it is not finite."""
        return self.checked_value(self.loss(batch), batch)

    def checked_value(self, loss: Tensor, batch: Batch) -> float:
        """The loss as a float; raises where it is not finite."""
        value = float(loss.detach())
        if not math.isfinite(value):
            raise MeasureError(
                f"the loss of {self.work.name} is {value} on batch {batch.number}; fix the model "
                "or leave that batch out."
            )
        return value

    @contextmanager
    def changed(
        self, weights: Mapping[str, Tensor], inputs: Mapping[str, Change]
    ) -> Iterator[None]:
        """Use other weights in some layers, and change the inputs of some at every call. Where
        layers share a weight, only those named have another.
        """
        with ExitStack() as stack:
            for name, weight in weights.items():
                layer = self.layers[name]
                parameters = layer.module._parameters
                before = parameters[layer.parameter]
                stack.callback(parameters.__setitem__, layer.parameter, before)
                parameters[layer.parameter] = weight  # type: ignore[assignment]
            for name, change in inputs.items():
                hook = self.layers[name].module.register_forward_pre_hook(
                    _input_hook(change), with_kwargs=True
                )
                stack.callback(hook.remove)
            yield

    @contextmanager
    def rounded(self, key: Key) -> Iterator[None]:
        """Round one layer to a format: its weights and, where the format does so, its inputs."""
        layer = self.layers[key.layer]
        rounding = self.input_rounding(key)
        with self.changed(
            {key.layer: layer.weight + self.weight_change(key)},
            {key.layer: rounding} if rounding else {},
        ):
            yield

    def weight_change(self, key: Key) -> Tensor:
        """The change that a format makes to a layer's weights."""
        if key not in self._changes:
            layer = self.layers[key.layer]
            self._changes[key] = (
                rounded(layer.weight, key.format, channel=layer.channel) - layer.weight
            )
        return self._changes[key]

    def input_rounding(self, key: Key) -> Change | None:
        """The rounding that a format applies to a layer's inputs; None where it does not round
        them.
        """
        number = format_of(key.format)
        if key.format == "fp8":  # by rows: the last dimension, or a convolution's channels
            channels = -1 - len(getattr(self.layers[key.layer].module, "kernel_size", ()))
            return lambda values: fp8_rounded(values, channels)
        if not number.rounds_inputs or key.layer not in self.ranges:
            return None
        if number.dtype is not None:
            return lambda values: values.to(number.dtype).to(values.dtype)
        return self.ranges[key.layer].rounded

    def watch(self) -> dict[str, int]:
        """Run a few batches: count each layer's calls, and find the ranges of the layers'
        inputs.
        """
        calls = dict.fromkeys(self.layers, 0)

        def enter(layer: str, args: Any, kwargs: Any) -> None:
            if layer not in calls:
                return
            calls[layer] += 1
            values = args[0] if args else next(iter(kwargs.values()), None)
            if isinstance(values, Tensor) and values.is_floating_point() and values.numel():
                low, high = (float(edge) for edge in values.detach().aminmax())
                known = self.ranges.get(layer, Range(low, high))
                self.ranges[layer] = Range(min(low, known.low), max(high, known.high))

        has_int8 = any(
            format_of(name).rounds_inputs and not format_of(name).is_float for name in self.formats
        )
        with watching(self.work.model, enter, lambda layer, output: None):
            for index in range(min(self.batches.available, RANGE_BATCHES if has_int8 else 1)):
                self.output(self.batches[index])
        return calls


@contextmanager
def twice_differentiable(model: nn.Module) -> Iterator[None]:
    """Run the model exclusively, in eval mode and full precision, with operators that have a second
    derivative; the state of random generators is restored.

    Fused attention has no second derivative, and the fast path of nn.TransformerEncoder bypasses
    its layers.
    """
    device = next((weight.device for weight in model.parameters()), torch.device("cpu"))
    with (
        running(model),
        preserve_rng(device),
        sdpa_kernel(SDPBackend.MATH),
        _no_fast_path(),
        torch.autocast(device.type, enabled=False),
    ):
        yield


@contextmanager
def _no_fast_path() -> Iterator[None]:
    before = torch.backends.mha.get_fastpath_enabled()
    torch.backends.mha.set_fastpath_enabled(False)
    try:
        yield
    finally:
        torch.backends.mha.set_fastpath_enabled(before)


def _input_hook(change: Change) -> Callable[[nn.Module, tuple[Any, ...], dict[str, Any]], Any]:
    """A hook that changes a layer's first input; integers, such as tokens, are not changed."""

    def changed(value: Any) -> Any:
        return change(value) if isinstance(value, Tensor) and value.is_floating_point() else value

    def enter(layer: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        if args:
            return (changed(args[0]), *args[1:]), kwargs
        name = next(iter(kwargs))
        return args, {**kwargs, name: changed(kwargs[name])}

    return enter


def with_gradients(work: Workload) -> Workload:
    """The workload, or one with a copy of the model where its weights were created under
    torch.inference_mode(), since such weights have no gradients.
    """
    return (
        work.copied() if any(weight.is_inference() for weight in work.model.parameters()) else work
    )
