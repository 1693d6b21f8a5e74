"""Notes on layers in int4: which multiply integers, and the error that bf16 adds there."""

from __future__ import annotations

from collections.abc import Collection, Mapping
from typing import Any

from torch import Tensor, nn

from ...measure import output_error
from ...model.tensors import tensors_in
from ...model.watch import watching
from ...records import counted
from ...workload import Workload, running
from .layer import input_of
from .weights_only import FEW_ROWS, WeightsOnly

MAX_NAMES = 3


def int4_notes(work: Workload, model: nn.Module, chosen: Collection[str]) -> list[str]:
    """Notes on the chosen layers that are in int4, from one call on the example inputs."""
    modules = {name: model.get_submodule(name) for name in chosen}
    layers = {
        name: module
        for name, module in modules.items()
        if isinstance(module, WeightsOnly) and module.in_nibbles
    }
    if not layers:
        return []
    few, many = set[str](), set[str]()

    def enter(name: str, args: Any, kwargs: Any) -> None:
        if name in layers:
            has_few = layers[name].has_few_rows(input_of(args, kwargs))
            (few if has_few else many).add(name)

    with watching(model, enter, lambda layer, output: None):
        output = _output(work, model)
    integer_layers = few - many
    reasons: dict[str, list[str]] = {}
    for name in layers.keys() - integer_layers:
        reasons.setdefault(_float_reason(layers[name]), []).append(name)
    notes = [
        f"{_named(sorted(names))} in int4: weights made at each call, since {why}"
        for why, names in reasons.items()
    ]
    if integer_layers:
        error, _ = output_error(_output_of_float_weights(work, model, layers), output)
        few_rows = (
            f"multiplied as packed integers in bf16, as in every call of at most {FEW_ROWS[4]} "
            "rows without gradients"
        )
        notes.insert(
            0,
            f"{_named(sorted(integer_layers))} in int4: {few_rows}; "
            f"bf16 moves the output by {error:.1e}",
        )
    return notes


def _float_reason(layer: WeightsOnly) -> str:
    if not layer.is_linear:
        return f"torch has no packed operator for layers of kind {layer.kind}"
    if layer.values.device.type != "cpu":
        return f"torch's packed operator here is the CPU's, and this is {layer.values.device}"
    return (
        f"the example inputs give a linear layer more than {FEW_ROWS[4]} rows, or numbers that are "
        "not to be rounded to bf16"
    )


def _named(names: list[str]) -> str:
    shown = ", ".join(f"'{name}'" for name in names[:MAX_NAMES])
    return f"{counted(len(names), 'layer')} ({shown}{', …' if len(names) > MAX_NAMES else ''})"


def _output(work: Workload, model: nn.Module) -> list[Tensor]:
    with running(model):
        output = work.inputs.clone()(model)
    return [tensor for tensor in tensors_in(output) if tensor.is_floating_point()]


def _output_of_float_weights(
    work: Workload, model: nn.Module, layers: Mapping[str, WeightsOnly]
) -> list[Tensor]:
    """The output with a float weight in every layer."""
    before = {name: layer.few_rows for name, layer in layers.items()}
    try:
        for layer in layers.values():
            layer.few_rows = 0
        return _output(work, model)
    finally:
        for name, layer in layers.items():
            layer.few_rows = before[name]
