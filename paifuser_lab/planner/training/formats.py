"""A format for each layer of a training: the fastest within a budget of loss.

The rise of the loss is predicted by the quadratic form of `lab.sensitivity`; the gradient's range
says which layers fp16 can hold; the time of each layer forward and backward is measured in each
format, in turn. An integer program chooses, and the loss of the whole in these formats is measured.
"""

from __future__ import annotations

import copy
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from statistics import fmean
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from ...errors import MeasureError
from ...machine import machine_label
from ...measure import in_turn
from ...model.copying import copied
from ...model.layers import channel_of
from ...model.watch import watching
from ...quantization.float_formats import autocast_obstacle
from ...records import LayerTrainingFormat, Sensitivity, TrainingFormats
from ...records.training_run import LOWEST_EXPONENT, RANGE_BINS, RANGE_WIDTH
from ...saliency import sensitivity
from ...training.observe import ranges_of
from ...training.precision import LOWER, LayerFormats
from ...training.workloads import loss_of, objective_of
from ...workload import QUIET, Derived, Workload, outside_inference, running, workload_of
from ...workload.data import Batch, Batches
from ...workload.seeding import preserve_rng
from ..precision.program import Cost, Program, solve

BATCHES = 4
SHARE = 0.01  # of the loss in fp32, which is the budget where none is given
MOST_LOST = 0.01  # of a layer's gradient, below fp16's normal numbers
HIGHEST_FP16, LOWEST_FP16 = 16, -13  # exponents of its normal numbers, as frexp has them
Ms = dict[str, float]


@dataclass(frozen=True)
class Ranges:
    """How many elements of each layer's gradient have each size, and the power of two that brings
    the largest of all to fp16's top.
    """

    counts: Mapping[str, Sequence[int]]

    @property
    def scale_power(self) -> int:
        """The exponent of the largest loss scale at which nothing overflows."""
        tops = [ends[1] for layer in self.counts if (ends := self.ends(layer)) is not None]
        return HIGHEST_FP16 - 1 - max(tops, default=0)

    def ends(self, layer: str) -> tuple[int, int] | None:
        """The powers of two between which a layer's gradient lay; None if it was zero."""
        bins = [index for index, count in enumerate(self.counts[layer][1:]) if count]
        if not bins:
            return None
        return (
            LOWEST_EXPONENT + RANGE_WIDTH * bins[0],
            LOWEST_EXPONENT + RANGE_WIDTH * (bins[-1] + 1),
        )

    def lost_share(self, layer: str) -> float:
        """The share of a layer's gradient that fp16 holds with fewer digits, or not at all."""
        exponents = LOWEST_EXPONENT + RANGE_WIDTH * numpy.arange(RANGE_BINS)
        counts = numpy.asarray(self.counts[layer][1:], float)
        is_low = exponents + self.scale_power < LOWEST_FP16
        return float(counts[is_low].sum() / counts.sum()) if counts.sum() else 0.0


@outside_inference
def plan_training_formats(
    subject: Workload | Derived,
    *,
    formats: Sequence[str] = ("bf16", "fp16"),
    budget: float | None = None,
    seconds: float = 10.0,
    known: Sensitivity | None = None,
    seed: int = 0,
    should_stop: Callable[[], bool] | None = None,
) -> TrainingFormats:
    """Choose a format for each layer of a training: the least time, with a predicted rise of the
    loss within `budget` (1% of the loss in fp32 where none is given).

    `known` is a sensitivity with these formats, if there is one. Weights stay in fp32.
    """
    work = workload_of(subject)
    objective = objective_of(loss_of(work))
    if unknown := [name for name in formats if name not in LOWER]:
        raise MeasureError(f"'{unknown[0]}' is no format to train in; there are bf16 and fp16.")
    with QUIET, preserve_rng(work.device), torch.enable_grad():
        batches = list(islice(Batches(work.train or (), work.device).epoch(seed, 0), BATCHES))
        model = copied(work.model).train()
        inputs, ranges = _observed(model, batches, objective)
        ms = _times(model, inputs, formats, seconds / 2)
    judged = known or sensitivity(
        work, formats=formats, seconds=seconds / 2, seed=seed, should_stop=should_stop
    )
    rises = _rises(judged, list(ms), formats)
    barred = _barred(ranges, list(ms), formats)
    loss = _loss(work, batches, {}, "fp32")
    allowed = SHARE * abs(loss) if budget is None else budget
    chosen = _chosen(ms, rises, barred, allowed)
    default, own = _options(chosen, list(ms))
    measured = _loss(work, batches, own, default) - loss
    if default != "fp32" and measured > allowed:  # other operators than layers compute in it too
        default, own = "fp32", chosen
        measured = _loss(work, batches, own, default) - loss
    return TrainingFormats(
        workload=work.name,
        machine=machine_label(),
        budget=allowed,
        loss=loss,
        default=default,
        formats=own,
        predicted_rise=sum(rises[layer].get(name, 0.0) for layer, name in chosen.items()),
        measured_rise=measured,
        loss_scale=2.0**ranges.scale_power,
        rows=tuple(
            LayerTrainingFormat(
                layer=layer,
                kind=type(work.model.get_submodule(layer)).__name__,
                format=chosen.get(layer, "fp32"),
                rises=rises[layer],
                ms=ms[layer],
                gradient_exponents=ranges.ends(layer),
                note=barred.get(layer, ""),
            )
            for layer in ms
        ),
    )


def _observed(
    model: nn.Module, batches: Sequence[Batch], objective: Callable[..., Tensor]
) -> tuple[dict[str, tuple[Tensor, int]], Ranges]:
    """Each layer's input and number of calls in a step, and its gradient's sizes over all
    batches.
    """
    layers = {
        name: module
        for name, module in model.named_modules()
        if channel_of(module) is not None and autocast_obstacle(module) is None
    }
    inputs: dict[str, tuple[Tensor, int]] = {}

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        values = (*args, *kwargs.values())
        if layer in layers and len(values) == 1 and isinstance(values[0], Tensor):
            first, calls = inputs.get(layer, (values[0].detach(), 0))
            inputs[layer] = first, calls + 1

    sizes: dict[str, Any] = {}
    for batch in batches:
        model.zero_grad(set_to_none=True)
        inputs.clear()
        with watching(model, enter, lambda layer, output: None):
            loss = objective(model, batch.inputs.clone(), batch.target)
        torch.autograd.backward(loss)
        for layer, counts in zip(inputs, ranges_of(model, inputs), strict=True):
            sizes[layer] = counts + sizes.get(layer, 0)
    model.zero_grad(set_to_none=True)
    if not inputs:
        raise MeasureError("no layer multiplies matrices, so that lower precision saves no time.")
    return dict(inputs), Ranges({layer: counts.tolist() for layer, counts in sizes.items()})


def _times(
    model: nn.Module,
    inputs: Mapping[str, tuple[Tensor, int]],
    formats: Sequence[str],
    seconds: float,
) -> dict[str, Ms]:
    """The ms of each layer forward and backward in each format, by its calls; layers that are alike
    are timed once.
    """
    alike: dict[str, list[str]] = {}
    for layer, (first, _) in inputs.items():
        key = f"{model.get_submodule(layer)!r} {tuple(first.shape)} {first.stride()}"
        alike.setdefault(key, []).append(layer)
    times: dict[str, Ms] = {}
    for names in alike.values():
        module, first = model.get_submodule(names[0]), inputs[names[0]][0]
        calls = {name: _call(module, first, name) for name in ("fp32", *formats)}
        ms = in_turn(calls, first.device, seconds / len(alike))
        times |= {
            layer: {name: value * inputs[layer][1] for name, value in ms.items()} for layer in names
        }
    return {layer: times[layer] for layer in inputs}


def _call(module: nn.Module, first: Tensor, name: str) -> Callable[[], None]:
    """A call of a copy of the layer, forward and backward, in a format."""
    layer, lower = copy.deepcopy(module), LOWER.get(name)
    x = first.clone().requires_grad_(first.is_floating_point())

    def run() -> None:
        with torch.enable_grad():
            with torch.autocast(x.device.type, dtype=lower, enabled=lower is not None):
                output = layer(x)
            torch.autograd.backward(output, torch.ones_like(output))
        layer.zero_grad(set_to_none=True)
        x.grad = None

    return run


def _rises(judged: Sensitivity, layers: Sequence[str], formats: Sequence[str]) -> dict[str, Ms]:
    """The predicted rise of the loss of each layer in each format; a fall counts as none."""
    known = {row.layer for row in judged.rows}
    return {
        layer: {
            name: max(0.0, estimate.value)
            for name in formats
            if layer in known and (estimate := judged.predicted(layer, name)) is not None
        }
        for layer in layers
    }


def _barred(ranges: Ranges, layers: Sequence[str], formats: Sequence[str]) -> dict[str, str]:
    """The layers whose gradient fp16 does not hold, and why."""
    if "fp16" not in formats:
        return {}
    lost = {layer: ranges.lost_share(layer) for layer in layers}
    return {
        layer: f"not fp16: {share:.0%} of its gradient would be too small at a loss scale of "
        f"2^{ranges.scale_power}"
        for layer, share in lost.items()
        if share > MOST_LOST
    }


def _chosen(
    ms: Mapping[str, Ms],
    rises: Mapping[str, Ms],
    barred: Mapping[str, str],
    budget: float,
) -> dict[str, str]:
    """The format of each layer that leaves fp32."""
    options = [
        {
            name: Cost(0.0 if name == "fp32" else rises[layer][name], value)
            for name, value in ms[layer].items()
            if name == "fp32" or (name in rises[layer] and not (name == "fp16" and layer in barred))
        }
        for layer in ms
    ]
    solution = solve(Program(options), "latency_ms", {"loss": budget})
    if solution is None:  # fp32 everywhere adds nothing, so that there always is one
        raise MeasureError(f"no choice of formats is within a budget of {budget:g}.")
    return {layer: name for layer, name in zip(ms, solution.formats, strict=True) if name != "fp32"}


def _options(chosen: Mapping[str, str], layers: Sequence[str]) -> tuple[str, dict[str, str]]:
    """The default and the layers' own formats: a format that most layers have is the default, as of
    torch's own autocast, so that tensors between them are not cast.
    """
    name, count = Counter(chosen.values()).most_common(1)[0] if chosen else ("fp32", 0)
    default = name if 2 * count > len(layers) else "fp32"
    formats = {layer: chosen.get(layer, "fp32") for layer in layers}
    return default, {layer: own for layer, own in formats.items() if own != default}


def _loss(
    work: Workload, batches: Sequence[Batch], formats: Mapping[str, str], default: str
) -> float:
    """The mean loss of the batches in these formats, in eval mode."""
    objective = partial(objective_of(loss_of(work)), work.model)
    layers = LayerFormats(work.model, formats, work.device)
    with running(work.model), layers.installed(), layers.computing(default, is_lower=True):
        return fmean(float(objective(batch.inputs.clone(), batch.target)) for batch in batches)
