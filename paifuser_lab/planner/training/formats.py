"""A format for each layer of a training: the fastest within a budget of loss.

The rise of the loss is predicted by the quadratic form of `lab.sensitivity`; the gradient's range
says which layers fp16 can hold; the time of each layer forward and backward is measured in each
format, in turn. An integer program chooses. Then whole steps are timed in turn: in fp32, in these
formats, and under torch's autocast. The fastest whose measured loss is within the budget is the
plan, and fp32 is where none is certainly faster.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice
from statistics import fmean

import torch

from ...errors import MeasureError
from ...machine import machine_label
from ...measure import ratio_of_rounds
from ...model.copying import copied
from ...records import LayerTrainingFormat, Sensitivity, TrainingFormats, TrainingStepTime
from ...saliency import sensitivity
from ...training import TrainPlan
from ...training.precision import LOWER, LayerFormats
from ...training.workloads import loss_of, objective_of
from ...workload import QUIET, Derived, Workload, outside_inference, running, workload_of
from ...workload.data import Batch, Batches
from ...workload.seeding import preserve_rng
from ..precision.program import Cost, Program, solve
from .measured import Ms, Ranges, layer_times, observed_layers, raced_steps

BATCHES = 4
SHARE = 0.01  # of the loss in fp32, which is the budget where none is given
MOST_LOST = 0.01  # of a layer's gradient, below fp16's normal numbers
FP32, BY_LAYER = "fp32", "formats by layer"


@outside_inference
def plan_training_formats(
    subject: Workload | Derived,
    *,
    formats: Sequence[str] = ("bf16", "fp16"),
    budget: float | None = None,
    seconds: float = 10.0,
) -> TrainingFormats:
    """Choose a format for each layer of a training: the least time, with a predicted rise of the
    loss within `budget` (1% of the loss in fp32 where none is given). Weights stay in fp32.
    """
    work = workload_of(subject)
    objective = objective_of(loss_of(work))
    if unknown := [name for name in formats if name not in LOWER]:
        raise MeasureError(f"'{unknown[0]}' is no format to train in; there are bf16 and fp16.")
    with QUIET, preserve_rng(work.device), torch.enable_grad():
        batches = list(islice(Batches(work.train, work.device).epoch(0, 0), BATCHES))
        model = copied(work.model).train()
        inputs, ranges = observed_layers(model, batches, objective)
        ms = layer_times(model, inputs, formats, seconds / 3)
    judged = sensitivity(work, formats=formats, seconds=seconds / 3)
    rises = _rises(judged, list(ms), formats)
    barred = _barred(ranges, list(ms), formats)
    loss = _loss(work, batches, Way("fp32", {}))
    allowed = SHARE * abs(loss) if budget is None else budget
    ways, notes = _ways(_chosen(ms, rises, barred, allowed), ms, barred)
    if BY_LAYER in ways and _loss(work, batches, ways[BY_LAYER]) - loss > allowed:
        # other operators than layers compute in the default too
        ways[BY_LAYER] = Way("fp32", ways[BY_LAYER].layers)
    steps = _timed(work, batches, ways, loss, seconds / 3)
    best = _best(steps, allowed)
    chosen = ways[best.way]
    return TrainingFormats(
        workload=work.name,
        machine=machine_label(),
        budget=allowed,
        loss=loss,
        way=best.way,
        default=chosen.default,
        formats=chosen.own,
        predicted_rise=sum(rises[layer].get(name, 0.0) for layer, name in chosen.layers.items()),
        measured_rise=best.rise,
        loss_scale=2.0**ranges.scale_power,
        steps=steps,
        rows=tuple(
            LayerTrainingFormat(
                layer=layer,
                kind=type(work.model.get_submodule(layer)).__name__,
                format=chosen.layers[layer],
                rises=rises[layer],
                ms=ms[layer],
                gradient_exponents=ranges.ends(layer),
                note=barred.get(layer, ""),
            )
            for layer in ms
        ),
        notes=tuple(notes),
    )


@dataclass(frozen=True)
class Way:
    """A format for each layer, and what else computes in: `default`."""

    default: str
    layers: Mapping[str, str]

    @property
    def own(self) -> dict[str, str]:
        """The layers that differ from the default."""
        return {layer: name for layer, name in self.layers.items() if name != self.default}

    @property
    def plan(self) -> TrainPlan:
        """The options of a training in this way."""
        return TrainPlan.model_validate({"precision": self.default, "formats": self.own})


def _ways(
    chosen: Mapping[str, str], ms: Mapping[str, Ms], barred: Mapping[str, str]
) -> tuple[dict[str, Way], list[str]]:
    """The ways to race: fp32, the chosen formats, and autocast in each format whose layers are
    faster in it; and why others are not.
    """
    ways = {FP32: Way("fp32", dict.fromkeys(ms, "fp32"))}
    notes = []
    totals = {name: sum(row[name] for row in ms.values()) for name in next(iter(ms.values()))}
    for name in list(totals)[1:]:
        if totals[name] > totals["fp32"]:
            slower = totals[name] / totals["fp32"]
            notes.append(
                f"autocast {name} was not timed: its layers alone take {slower:.2g} × as long as "
                "in fp32"
            )
        elif name == "fp16" and barred:
            notes.append("autocast fp16 was not timed: not every layer's gradient fits into it")
        else:
            ways[f"autocast {name}"] = Way(name, dict.fromkeys(ms, name))
    by_layer = Way(_default(chosen, list(ms)), {name: chosen.get(name, "fp32") for name in ms})
    if by_layer not in ways.values():
        ways[BY_LAYER] = by_layer
    return ways, notes


def _timed(
    work: Workload, batches: Sequence[Batch], ways: Mapping[str, Way], loss: float, seconds: float
) -> tuple[TrainingStepTime, ...]:
    """A step in each way, timed in turn, and what the way adds to the loss."""
    samples = raced_steps(work, batches, {name: way.plan for name, way in ways.items()}, seconds)
    ratios = {name: ratio_of_rounds(samples[FP32], samples[name]) for name in ways}
    return tuple(
        TrainingStepTime(
            way=name,
            ms=samples[name].median_ms,
            ratio=ratios[name][0],
            interval=ratios[name][1],
            rise=_loss(work, batches, way) - loss,
        )
        for name, way in ways.items()
    )


def _best(steps: Sequence[TrainingStepTime], budget: float) -> TrainingStepTime:
    """The fastest within the budget that is certainly faster than fp32, the first; else fp32."""
    faster = [step for step in steps[1:] if step.interval[0] > 1 and step.rise <= budget]
    return max(faster, key=lambda step: step.ratio, default=steps[0])


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


def _default(chosen: Mapping[str, str], layers: Sequence[str]) -> str:
    """The format that most layers have, so that tensors between them are not cast; else fp32."""
    name, count = Counter(chosen.values()).most_common(1)[0] if chosen else ("fp32", 0)
    return name if 2 * count > len(layers) else "fp32"


def _loss(work: Workload, batches: Sequence[Batch], way: Way) -> float:
    """The mean loss of the batches in this way, in eval mode."""
    objective = partial(objective_of(loss_of(work)), work.model)
    layers = LayerFormats(work.model, way.own, work.device)
    with running(work.model), layers.installed(), layers.computing(way.default, is_lower=True):
        return fmean(float(objective(batch.inputs.clone(), batch.target)) for batch in batches)
