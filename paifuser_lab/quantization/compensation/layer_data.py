"""The inputs and outputs of layers on the calibration data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import StepError
from ...model.watch import FAILED, describe, watching
from ...workload import running

Receive = Callable[[str, tuple[Any, ...], Tensor], None]  # layer, its inputs, its output


def read_layer_data(
    model: nn.Module, runs: Iterable[Callable[[], Any]], layers: Iterable[str], receive: Receive
) -> None:
    """Pass the inputs and the output of each call of the layers to `receive`, run after run."""
    selected = set(layers)
    inputs: dict[str, tuple[Any, ...]] = {}

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if layer in selected:
            inputs[layer] = (*args, *kwargs.values())
            _check(model, layer, inputs[layer][0])

    def leave(layer: str, output: Any) -> None:
        if layer in selected and output is not FAILED:
            receive(layer, inputs.pop(layer), output)

    with running(model):
        for run in runs:
            with watching(model, enter, leave):
                run()


def _check(model: nn.Module, layer: str, inputs: Tensor) -> None:
    if not bool(torch.isfinite(inputs).all()):
        raise StepError(
            f"{describe(model, layer)} receives a NaN or an infinity from the calibration data; "
            "find it there or leave the layer out."
        )
