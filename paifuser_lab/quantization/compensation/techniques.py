"""Apply the techniques in turn, and measure the output error before and after each."""

from __future__ import annotations

from collections.abc import Callable, Collection
from typing import Any, Literal

from torch import Tensor

from ...measure import output_error
from ...model.tensors import tensors_in
from ...records import counted
from ...workload import running
from .context import Context, Outcome, in_place, read_layer_data
from .operands import output_rows
from .rescale import equalise, smooth
from .rounding import round_adaptively


def correct_bias(context: Context) -> Outcome:
    """Add to each bias the mean difference of the float and the quantized layer's output."""
    layers = {name: layer for name, layer in context.layers().items() if layer.kind != "Embedding"}
    totals: dict[str, Tensor] = {}
    counts: dict[str, int] = {}

    def receive(layer: str, inputs: tuple[Any, ...], output: Tensor) -> None:
        difference = (output - layers[layer](*inputs)).float()
        rows = output_rows(context.model.get_submodule(layer), difference)
        totals[layer] = totals.get(layer, 0) + rows.double().sum(dim=0)
        counts[layer] = counts.get(layer, 0) + len(rows)

    read_layer_data(context.model, context.runs, layers, receive)
    context.shifts = {
        layer: (total / counts[layer]).float() for layer, total in totals.items() if counts[layer]
    }
    return Outcome(
        len(context.shifts), f"bias correction of {counted(len(context.shifts), 'layer')}"
    )


Technique = Literal["bias", "equalise", "smooth", "rounding"]
# in the order of application
TECHNIQUES: dict[Technique, Callable[[Context], Outcome]] = {
    "equalise": equalise,
    "smooth": smooth,
    "rounding": round_adaptively,
    "bias": correct_bias,
}


def compensate(
    context: Context, requested: Collection[Technique], example: Callable[[], Any]
) -> list[str]:
    """Apply the requested techniques in turn; a note on each, with the error on the example."""
    if not requested:
        return []
    reference = _output(context, example)
    error, notes = _error(context, example, reference), []
    for technique in (TECHNIQUES[name] for name in TECHNIQUES if name in requested):
        outcome, before = technique(context), error
        if not outcome.count:
            notes.append(f"{outcome.note}: nothing to change")
            continue
        error = _error(context, example, reference)
        notes.append(
            f"{outcome.note}: output error {before:.2g} → "
            f"{error:.2g}{', no gain here' if error >= before else ''}"
        )
    return notes


def _error(context: Context, example: Callable[[], Any], reference: list[Tensor]) -> float:
    """The relative L2 error of the model's output with the present quantized layers."""
    with in_place(context.model, context.joined()):
        return output_error(reference, _output(context, example))[0]


def _output(context: Context, example: Callable[[], Any]) -> list[Tensor]:
    with running(context.model):
        return tensors_in(example())
