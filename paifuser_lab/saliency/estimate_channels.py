"""Estimate how much each output channel of each layer matters: the record that `lab.importance`
returns.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any

import torch

from ..machine.host import device_name
from ..model.graph import observe
from ..model.weights import weights_hash
from ..records import Importance, LayerImportance
from ..workload import Derived, Workload, outside_inference, workload_of
from .channel_run import ChannelRun, batches_for, missing_for
from .channels import CHANNEL_ESTIMATORS
from .channels.output_channels import channel_count, output_dimension
from .channels.without_data import Magnitude
from .select_layers import check_methods, select_layers
from .subject import Batch, Layer, Subject, twice_differentiable, with_gradients

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
    check_methods([method], CHANNEL_ESTIMATORS, seconds)
    name, notes = _possible(
        work, method, has_batches=not (batches is None or isinstance(batches, int))
    )
    data, data_notes = batches_for(work, name, batches, seed)
    selection = select_layers(work, layers, output_dimension, "output channels")
    run = ChannelRun.of(work, selection.layers, name, data, seed)
    with twice_differentiable(work.model):
        selection.drop_idle(run.subject)
        outputs = _output_layers(run.subject)
        run.run(seconds, should_stop or (lambda: False))
    return Importance(
        workload=work.name,
        machine=device_name(work.device),
        method=run.estimator.name,
        unit=run.estimator.unit,
        examples=run.examples,
        rows=tuple(
            _row(run, layer, selection.reasons.get(layer), is_output=layer in outputs)
            for layer in selection.names
        ),
        notes=(*notes, *data_notes),
        is_interrupted=run.is_interrupted,
        seconds=run.seconds,
        seed=seed,
        weights_hash=weights_hash(work.model),
        cut_by=cut_note(run.estimator.name),
    )


def _output_layers(subject: Subject) -> set[str]:
    """The layers whose output is the model's output."""
    work = subject.work
    graph = observe(work.model, lambda: subject.output(Batch(work.inputs, number=0)))
    return {
        operation.layer
        for operation in graph.operations
        if not graph.outputs.isdisjoint(operation.makes)
    }


def _row(run: ChannelRun, name: str, reason: str | None, *, is_output: bool) -> LayerImportance:
    """A layer's values; for one without, the reason as its note."""
    module, means = run.subject.work.model.get_submodule(name), run.means.get(name)
    reason = reason or run.estimator.notes.get(name) or (OUTPUT if is_output else None)
    values: Any = None
    errors: Any = None
    if means is not None and means.count:
        values, errors = means.mean, means.error
        if not means.is_finite:
            values, reason = None, NOT_FINITE
    return LayerImportance(
        layer=name,
        kind=type(module).__name__,
        channels=_width(name, module) if values is None else len(values),
        values=() if values is None else tuple(values.abs().tolist()),
        errors=() if errors is None else tuple(errors.tolist()),
        is_answer=is_output,
        note=reason,
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


def _possible(work: Workload, method: str, *, has_batches: bool) -> tuple[str, list[str]]:
    """The method, or magnitude with a note where the workload lacks what it needs."""
    if (missing := missing_for(work, method, has_batches=has_batches)) is None:
        return method, []
    return Magnitude.name, [
        f"{work.name} has no {missing}, which {method} needs: estimated by magnitude instead"
    ]
