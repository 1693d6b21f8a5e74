"""Estimate how much each output channel of each layer matters: the record that `lab.importance`
returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from difflib import get_close_matches
from typing import Any

import torch

from ..errors import MeasureError
from ..machine.host import host_facts
from ..model.graph import observe
from ..model.weights import weights_hash
from ..records import Importance, LayerImportance
from ..workload import Derived, Workload, outside_inference, workload_of
from .channel_run import ChannelRun, batches_for, missing_for
from .channels import CHANNEL_ESTIMATORS
from .channels.magnitude import Magnitude
from .channels.output_channels import channel_count, channel_layers, output_dimension
from .perturb import twice_differentiable, with_gradients
from .select_layers import chosen, obstacle
from .subject import Batch, Layer, Subject

NEVER_RUNS = "it never ran on the first batch"
OUTPUT = "its channels are the model's output: none of them can go"
NOT_FINITE = "its values are not finite: a gradient or a weight is infinite or NaN"


@outside_inference
def importance(
    subject: Workload | Derived,
    method: str = "taylor",
    *,
    layers: str | Iterable[str] | None = None,
    batches: int | Sequence[Any] | None = None,
    seconds: float | None = None,
    seed: int = 0,
    should_stop: Callable[[], bool] | None = None,
) -> Importance:
    """Estimate how much each output channel matters: by taylor, taylor2, fisher, activation,
    magnitude, batch-norm or random; `prune: {importance: …}` cuts by the same values.

    Means over batches (16, unless `batches` is a number or a list of them) with their standard
    errors; an interrupt, or the end of the `seconds`, keeps the batches so far. Without data or
    loss, a method that needs them is replaced by magnitude, and the record says so.
    """
    work = with_gradients(workload_of(subject))
    _check_arguments(method, seconds)
    name, notes = _possible(
        work, method, has_batches=not (batches is None or isinstance(batches, int))
    )
    data, data_notes = batches_for(work, name, batches, seed)
    selected = chosen(channel_layers(work), layers, what="output channels")
    reasons = {name: reason for name, module in selected.items() if (reason := obstacle(module))}
    usable = {
        name: Layer(name, module, output_dimension(module) or 0)
        for name, module in selected.items()
        if name not in reasons
    }
    estimate = _Estimate(ChannelRun.of(work, usable, name, data, seed), notes + data_notes, reasons)
    with twice_differentiable(work.model):
        estimate.drop_layers_that_never_run()
        estimate.find_outputs()
        estimate.run.run(seconds, should_stop or (lambda: False))
    return estimate.record(list(selected))


@dataclass
class _Estimate:
    """A run, with what the record holds besides its values."""

    run: ChannelRun
    notes: list[str]
    reasons: dict[str, str] = field(default_factory=dict)  # layer → why it has no values
    outputs: set[str] = field(default_factory=set)

    @property
    def subject(self) -> Subject:
        """The workload and its layers."""
        return self.run.subject

    def drop_layers_that_never_run(self) -> None:
        """A layer that is never called has no gradient and no output; all its channels would seem
        unimportant.
        """
        self._check_layers_left()
        calls = self.subject.watch()
        self.reasons |= {name: NEVER_RUNS for name, count in calls.items() if not count}
        self.subject.layers = {
            name: layer for name, layer in self.subject.layers.items() if calls[name]
        }
        self._check_layers_left()

    def find_outputs(self) -> None:
        """Find the layers whose output is the model's output."""
        work = self.subject.work
        graph = observe(work.model, lambda: self.subject.output(Batch(work.inputs, number=0)))
        self.outputs = {
            operation.layer
            for operation in graph.operations
            if not graph.outputs.isdisjoint(operation.makes)
        }

    def record(self, names: list[str]) -> Importance:
        """The record; a layer without values has the reason as its note."""
        work, run = self.subject.work, self.run
        return Importance(
            workload=work.name,
            machine=torch.cuda.get_device_name(work.device)
            if work.device.type == "cuda"
            else host_facts().name,
            method=run.estimator.name,
            unit=run.estimator.unit,
            examples=run.examples,
            rows=tuple(self._row(name) for name in names),
            notes=tuple(self.notes),
            is_interrupted=run.is_interrupted,
            seconds=run.seconds,
            seed=self.subject.seed,
            weights_hash=weights_hash(work.model),
            cut_by=cut_note(run.estimator.name),
        )

    def _row(self, name: str) -> LayerImportance:
        module = self.subject.work.model.get_submodule(name)
        means, is_output = self.run.means.get(name), name in self.outputs
        reason = self.reasons.get(name) or self.run.estimator.notes.get(name)
        reason = reason or (OUTPUT if is_output else None)
        kind = type(module).__name__
        if means is None or not means.count or not means.is_finite:
            return LayerImportance(
                layer=name,
                kind=kind,
                channels=_width(name, module),
                is_answer=is_output,
                note=NOT_FINITE if means is not None and means.count else reason,
            )
        return LayerImportance(
            layer=name,
            kind=kind,
            channels=len(means.mean),
            values=means.values,
            errors=means.errors,
            is_answer=is_output,
            note=reason,
        )

    def _check_layers_left(self) -> None:
        if not self.subject.layers:
            name, reason = next(iter(self.reasons.items()))
            raise MeasureError(
                f"none of the requested layers of {self.subject.work.name} can be "
                f"estimated; '{name}': {reason}."
            )


def cut_note(shown: str, cut: str | None = None) -> str:
    """The note beside the values of one method: how the step prune cuts by them, or by another
    method.
    """
    if cut is None or cut == shown:
        return (
            f"The step prune with importance: {shown} removes the channels with the lowest of "
            "these values; where channels of several layers go together, those with the lowest sum "
            "over the layers."
        )
    unit = CHANNEL_ESTIMATORS[cut].unit if cut in CHANNEL_ESTIMATORS else ""
    return f"Shown: {shown}. The step prune in the recipe cuts by {cut}: {unit}"


def _width(name: str, module: torch.nn.Module) -> int:
    """The number of output channels, from the layer's attributes where the weight is computed at
    each call.
    """
    if module._parameters.get("weight") is None:
        return int(getattr(module, "out_channels", 0) or getattr(module, "out_features", 0))
    return channel_count(Layer(name, module, output_dimension(module) or 0))


def _check_arguments(method: str, seconds: float | None) -> None:
    if method not in CHANNEL_ESTIMATORS:
        near = get_close_matches(str(method), CHANNEL_ESTIMATORS, n=1, cutoff=0.5)
        hint = f" (did you mean {near[0]}?)" if near else ""
        raise MeasureError(
            f"{method!r} is no method; there are {', '.join(CHANNEL_ESTIMATORS)}{hint}."
        )
    if seconds is not None and not seconds > 0:
        raise MeasureError(f"{seconds} seconds leave no time to estimate; give more than 0.")


def _possible(work: Workload, method: str, *, has_batches: bool) -> tuple[str, list[str]]:
    """The method, or magnitude with a note where the workload lacks what it needs."""
    if (missing := missing_for(work, method, has_batches=has_batches)) is None:
        return method, []
    return Magnitude.name, [
        f"{work.name} has no {missing}, which {method} needs: estimated by magnitude instead"
    ]
