"""What layers are given and what they answer, on the calibration data."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from ...errors import StepError
from ...model.watch import FAILED, describe, watching
from ...workload import running

Take = Callable[[str, tuple[Any, ...], Tensor], None]  # layer, what it was given, its answer


def read(
    model: nn.Module, runs: Iterable[Callable[[], Any]], layers: Iterable[str], take: Take
) -> None:
    """Hand over what each call of the layers is given and answers, run after run."""
    wanted = set(layers)
    given: dict[str, tuple[Any, ...]] = {}

    def enter(layer: str, args: Any, kwargs: Any) -> None:
        if layer in wanted:
            given[layer] = (*args, *kwargs.values())
            _check(model, layer, given[layer][0])

    def leave(layer: str, output: Any) -> None:
        if layer in wanted and output is not FAILED:
            take(layer, given.pop(layer), output)

    with running(model):
        for run in runs:
            with watching(model, enter, leave):
                run()


def _check(model: nn.Module, layer: str, given: Tensor) -> None:
    if not bool(torch.isfinite(given).all()):
        raise StepError(
            f"{describe(model, layer)} is given a NaN or an infinity by the calibration data; look "
            "for it there or leave the layer out."
        )
