"""What a training plan is made from: the sizes of the layers' gradients, their time forward and
backward in each format, and whole steps timed in turn.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from itertools import cycle
from typing import Any

import numpy
import torch
from torch import Tensor, nn

from ...errors import MeasureError
from ...measure import Candidate, Samples, in_turn, rounds_in_turn
from ...model.copying import copied
from ...model.layers import channel_of
from ...model.watch import watching
from ...quantization.float_formats import autocast_obstacle
from ...records.training_run import LOWEST_EXPONENT, RANGE_BINS, RANGE_WIDTH
from ...training import TrainPlan
from ...training.learner import Learner
from ...training.observe import ranges_of
from ...training.precision import LOWER, LayerFormats
from ...training.workloads import loss_of, objective_of
from ...workload import Workload
from ...workload.data import Batch
from ...workload.seeding import preserve_rng

HIGHEST_FP16, LOWEST_FP16 = 16, -13  # exponents of its normal numbers, as frexp has them
ROUNDS = 40  # of a step
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


def observed_layers(
    model: nn.Module, batches: Sequence[Batch], objective: Callable[..., Tensor]
) -> tuple[dict[str, tuple[Tensor, int]], Ranges]:
    """Each layer's input and calls in a step, and its gradient's sizes over all batches."""
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


def layer_times(
    model: nn.Module,
    inputs: Mapping[str, tuple[Tensor, int]],
    formats: Sequence[str],
    seconds: float,
) -> dict[str, Ms]:
    """The ms of each layer forward and backward in each format; equal layers are timed once."""
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


def raced_steps(
    work: Workload, batches: Sequence[Batch], plans: Mapping[str, TrainPlan], seconds: float
) -> dict[str, Samples]:
    """The times of a step with each plan: forward, backward, and the optimizer at a rate of 0."""
    objective = objective_of(loss_of(work))
    model = copied(work.model).train()
    first = next(iter(plans.values()))  # whose optimizer all have
    learner = Learner(model, None, first, work.device)
    source = cycle(batches)

    @contextmanager
    def in_force(plan: TrainPlan) -> Iterator[None]:
        learner.plan = plan
        learner.formats = LayerFormats(model, plan.formats, work.device)
        with learner.prepared():
            yield

    def step() -> None:
        batch = next(source)
        with torch.enable_grad():
            loss = learner.loss(partial(objective, model, batch.inputs.clone(), batch.target))
            learner.take_step(loss, 0.0)

    threads = torch.get_num_threads()
    candidates = [
        Candidate(name, step, threads, work.device, partial(in_force, plan))
        for name, plan in plans.items()
    ]
    with preserve_rng(work.device):
        *_, samples = rounds_in_turn(candidates, rounds=ROUNDS, seconds=seconds)
    return samples
