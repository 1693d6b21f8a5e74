"""Put quantized layers into a model: fold batch-norms, calibrate inputs, connect neighbours."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal
from weakref import WeakKeyDictionary

from torch import nn

from ..errors import ShouldStop, StepError
from ..model.fold import fold, plan_fold
from ..model.formats import WEIGHTS_ONLY, Range, is_reduced, may_saturate
from ..model.graph import Graph, observe
from ..model.layers import channel_of, tied_layers
from ..model.replace import replace_layer
from ..model.watch import describe
from ..model.weights import answer_hash, weights_hash
from ..records import counted
from ..workload import Inputs, Workload, running
from ..workload.data import Same, calibration_batches, data_for_evaluation
from .calibration import How, calibrate
from .compensation import Context, Technique, compensate
from .conversion import count_conversions
from .factory import obstacle, quantized_layer
from .layers.int8 import Int8Layer
from .layers.layer import QuantizedLayer, tie
from .residuals import round_outputs, rounded_outputs

# where sums and concatenations of int8 layers are computed on integers: nowhere, in exported files
# alone, or in the live model too
Sums = Literal["numbers", "exported", "int8"]
MAX_CALIBRATIONS = 4
REDUCED = (
    "int8 weights within 7 bits (reduced range), which also processors without VNNI, that add "
    "pairs of int8 products in 16 bits, multiply exactly"
)
UNREDUCED = (
    "int8 weights use 8 bits, for processors with VNNI: this one would saturate, so these layers "
    "compute in fp32 here"
)


@dataclass(frozen=True)
class Calibration:
    """How the ranges of inputs are calibrated, and on how many batches."""

    how: How = "min-max"
    batches: int = 4


def trace_graph(work: Workload, model: nn.Module) -> Graph:
    """The operators of a run on the example inputs."""
    inputs = work.inputs.clone()
    with running(model):
        return observe(model, lambda: inputs(model))


def obstacles_of(
    model: nn.Module, graph: Graph | None, chosen: Mapping[str, str], *, stay_tied: bool = True
) -> dict[str, str]:
    """The chosen layers that cannot have their format, and why; without a graph, layers that never
    run are not detected. Layers that share a weight can share its integers, unless each is to have
    its own.
    """
    reasons: dict[str, str] = {}
    tied = tied_layers(model)
    spare = _spare_owners(graph, tied) if graph is not None and stay_tied else set()
    for layer, name in chosen.items():
        reason = obstacle(model.get_submodule(layer), name)
        is_spare = layer in spare and WEIGHTS_ONLY.fullmatch(name)
        if reason is None and graph is not None and not graph.entries[layer] and not is_spare:
            reason = (
                "it is never called: its weight is read by the layer around it, or it does not run "
                "on the example inputs"
            )
        if reason is not None:
            reasons[layer] = reason
    able = {layer: name for layer, name in chosen.items() if layer not in reasons}
    for owners in tied:
        formats = {able.get(layer) for layer in owners}
        if stay_tied and len(formats) == 1 and WEIGHTS_ONLY.fullmatch(formats.pop() or ""):
            continue
        unable = next((layer for layer in owners if layer in reasons), None)
        for layer in able.keys() & owners:
            other = unable or next(owner for owner in owners if owner != layer)
            remedy = "give both int8-weights or int4-weights" if stay_tied else "leave both out"
            why = remedy if unable is None else f"that one cannot: {reasons[unable]}"
            reasons[layer] = f"it shares its weight with '{other}'; {why}"
    return reasons


def _spare_owners(graph: Graph, tied: list[list[str]]) -> set[str]:
    """The owners of weights that only calls of their owners read: one that is never called, as the
    table that transformers' T5 gives encoder, decoder and head, needs no call of its own.
    """
    spare: set[str] = set()
    for owners in tied:
        names = (f"{layer}.weight" for layer in owners)
        weight = next(graph.weights[name] for name in names if name in graph.weights)
        readers = {operation.layer for operation in graph.readers.get(weight, ())}
        if readers and readers <= set(owners):
            spare |= set(owners)
    return spare


def quantize_layers(
    work: Workload,
    model: nn.Module,
    chosen: Mapping[str, str],
    calibration: Calibration,
    techniques: Collection[Technique] = (),
    *,
    sums: Sums = "exported",
    reduced_range: bool | None = None,
    should_stop: ShouldStop | None = None,
) -> list[str]:
    """Replace layers by those of the chosen formats, each of which must be supported; return notes
    on the changes.

    `sums`: where the inputs of sums and concatenations between int8 layers are rounded too.
    `reduced_range`: whether int8 weights use seven bits; None: as this processor needs.
    """
    int8 = [layer for layer, name in chosen.items() if name == "int8"]
    fp8 = [layer for layer, name in chosen.items() if name == "fp8"]
    notes = _fold_into(work, model, list(chosen) if "equalise" in techniques else [*int8, *fp8])
    data = calibration_batches(work, calibration.batches)
    calls = runs(model, data or [work.inputs])
    output_ranges = partial(output_spans_of, model, calls, calibration)
    shared = tied_layers(model, chosen)
    # a technique would change a shared weight for one of its layers alone
    apart = [*fp8, *(layer for owners in shared for layer in owners)]
    compensated = {layer: name for layer, name in chosen.items() if layer not in set(apart)}
    context = Context(
        model,
        trace_graph(work, model),
        compensated,
        calls,
        lambda: spans_of(work, model, int8, calibration, data),
        None if sums == "numbers" else output_ranges,
        sums == "int8",
        reduced_range,
        should_stop,
    )
    notes_on_compensation = compensate(context, techniques, lambda: work.inputs.clone()(model))
    if notes_on_compensation and not data:
        notes_on_compensation.append(
            "compensation used only the example inputs, which also measured it; give the workload "
            "data"
        )
    rounded, sum_count = context.residual_roundings()
    for layer, quantized in (
        context.joined()
        | {layer: quantized_layer(model.get_submodule(layer), chosen[layer]) for layer in apart}
    ).items():
        replace_layer(model, layer, quantized)
    tie(model, shared)
    round_outputs(model, rounded, only_exported=sums == "exported")
    if int8 and (sum_count or sums == "int8"):
        where = "on integers" if sums == "int8" else "on integers in exported files"
        notes_on_compensation += [f"{counted(sum_count, 'sum')} (concatenations too) {where}"]
    notes += [f"{counted(len(fp8), 'layer')} in fp8, inputs scaled row by row"] if fp8 else []
    return [
        *notes,
        *notes_on_compensation,
        *(int8_notes(work, model, len(int8), calibration, data) if int8 else []),
    ]


def quantize_weights(model: nn.Module, chosen: Mapping[str, str]) -> list[str]:
    """Replace layers by those of formats that need no data or run; return notes."""
    shared = tied_layers(model, chosen)
    for layer, name in chosen.items():
        replace_layer(model, layer, quantized_layer(model.get_submodule(layer), name))
    tie(model, shared)
    return [f"{counted(len(chosen), 'layer')} in lower precision, rounded without data"]


def _fold_into(work: Workload, model: nn.Module, layers: Sequence[str]) -> list[str]:
    """Fold the batch-norms right after these layers into them."""
    if not layers:
        return []
    pairs = [
        pair for pair in plan_fold(model, trace_graph(work, model)).pairs if pair[0] in set(layers)
    ]
    fold(model, pairs)
    return (
        [f"folded {counted(len(pairs), 'batch-norm layer')} into quantized layers"] if pairs else []
    )


_calibrated: WeakKeyDictionary[Workload, dict[Any, dict[str, Range]]] = WeakKeyDictionary()


def spans_of(
    work: Workload,
    model: nn.Module,
    int8: Sequence[str],
    calibration: Calibration,
    data: Sequence[Inputs] | None = None,
) -> dict[str, Range]:
    """The ranges of int8 layers' inputs, on the given data, or on that of the workload."""
    ranges = _all_spans(work, model, calibration, data) if int8 else {}
    if missing := [layer for layer in int8 if layer not in ranges]:
        raise StepError(
            f"layer '{missing[0]}' receives no float tensor, whose range int8 needs; leave it out."
        )
    return {layer: ranges[layer] for layer in int8}


def _all_spans(
    work: Workload, model: nn.Module, calibration: Calibration, data: Sequence[Inputs] | None
) -> dict[str, Range]:
    """The ranges of all layers' inputs, cached by the model for other choices of layers."""
    with running(model):
        answer = answer_hash(work.inputs.clone()(model))
    source = data_for_evaluation(work)
    key = weights_hash(model), answer, calibration, Same(None if source is None else source[0])
    cached = _calibrated.setdefault(work, {})
    if key not in cached:
        layers = [name for name, layer in model.named_modules() if obstacle(layer, "int8") is None]
        data = calibration_batches(work, calibration.batches) if data is None else data
        with running(model):
            cached[key] = calibrate(
                model, runs(model, data or [work.inputs]), layers, calibration.how
            )
        while len(cached) > MAX_CALIBRATIONS:
            cached.pop(next(iter(cached)))
    return cached[key]


def output_spans_of(
    model: nn.Module, calls: list[Callable[[], Any]], calibration: Calibration, layers: list[str]
) -> dict[str, Range]:
    """The ranges of layers' outputs."""
    with running(model):
        return calibrate(model, calls, layers, calibration.how, of="output")


def runs(model: nn.Module, batches: Sequence[Inputs]) -> list[Callable[[], Any]]:
    """Calls of the model on batches."""
    return [lambda batch=batch: batch.clone()(model) for batch in batches]  # type: ignore[misc]


def int8_notes(
    work: Workload,
    model: nn.Module,
    count: int,
    calibration: Calibration,
    data: Sequence[Inputs],
) -> list[str]:
    """Notes on how a model with this many int8 layers runs, and on the data of their ranges."""
    inputs = work.inputs.clone()
    with running(model), count_conversions() as conversions:
        inputs(model)
    source = (
        f"{counted(sum(_examples(batch) for batch in data), 'example')}"
        if data
        else "the example inputs alone (give the workload data to do better)"
    )
    return [
        f"{counted(count, 'layer')} in int8, ranges by {calibration.how} over {source}",
        f"a call converts {counted(conversions['to int8'], 'tensor')} to int8 and "
        f"{conversions['back']} back"
        + (
            ""
            if rounded_outputs(model)
            else f"; {conversions['kept']} layers receive int8 from the layer before"
        ),
        *range_notes(model),
    ]


def range_notes(model: nn.Module) -> list[str]:
    """A note where the model's int8 weights lack the full range, or should lack it."""
    values = [layer.values for layer in model.modules() if isinstance(layer, Int8Layer)]
    if any(may_saturate(each) for each in values):
        return [UNREDUCED]
    return [REDUCED] if values and all(is_reduced(each) for each in values) else []


def _examples(batch: Inputs) -> int:
    return next((tensor.shape[0] for tensor in batch.tensors if tensor.ndim), 1)


def no_layer_message(model: nn.Module, kind: str) -> str:
    """The message on why a model has no layer to quantize."""
    rounded = {
        name: layer for name, layer in model.named_modules() if isinstance(layer, QuantizedLayer)
    }
    if rounded:
        name, layer = next(iter(rounded.items()))
        return (
            f"'{name}' is in {layer.format} already, and is not rounded again; let one '{kind}' "
            "say all of it."
        )
    if next(model.children(), None) is None and next(model.parameters(), None) is not None:
        return (
            f"the model is itself a {type(model).__name__}, and a layer is rounded inside a model; "
            "wrap it: nn.Sequential(model)."
        )
    return "it has no layer with weights that could be rounded; leave the step out."


def supported_formats(
    work: Workload,
    model: nn.Module,
    wanted: Mapping[str, str],
    by_name: Collection[str],
    *,
    stay_tied: bool = True,
) -> tuple[dict[str, str], list[str]]:
    """The requested formats without the layers that do not support theirs, and a note on each of
    those that has weights.

    Raises where such a layer was requested by its own name, or where no layer supports its format.
    """
    reasons = obstacles_of(model, trace_graph(work, model), wanted, stay_tied=stay_tied)
    return _supported(model, reasons, wanted, by_name)


def supported_without_data(
    model: nn.Module, wanted: Mapping[str, str], by_name: Collection[str]
) -> tuple[dict[str, str], list[str]]:
    """The same for a model without known inputs; formats that need input ranges are refused."""
    for layer, name in wanted.items():
        if name == "int8":
            raise StepError(
                f"{describe(model, layer)} in int8 needs the range of its input, which is "
                "calibrated on data; pass data, or use int8-weights"
            )
    return _supported(model, obstacles_of(model, None, wanted), wanted, by_name)


def _supported(
    model: nn.Module,
    reasons: Mapping[str, str],
    wanted: Mapping[str, str],
    by_name: Collection[str],
) -> tuple[dict[str, str], list[str]]:
    for layer, reason in reasons.items():
        if layer in by_name:
            raise StepError(f"{describe(model, layer)} cannot be in {wanted[layer]}: {reason}.")
    supported = {layer: name for layer, name in wanted.items() if layer not in reasons}
    if not supported:
        layer, reason = next(iter(reasons.items()))
        raise StepError(
            f"none of the chosen layers can be in {wanted[layer]}; {describe(model, layer)}: "
            f"{reason}."
        )
    return supported, [
        f"layer '{layer}' stays as it is: {reason}"
        for layer, reason in reasons.items()
        if channel_of(model.get_submodule(layer)) is not None
    ]
