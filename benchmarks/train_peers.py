"""Peers of `lab.enable()`, set up as their users do: torch's autocast and compiler, HF Accelerate
and Lightning Fabric.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib import import_module
from typing import Any

import torch


def _autocast(contender: Any) -> None:
    model = contender.model

    def call(args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
        with torch.autocast("cpu", dtype=torch.bfloat16):
            return model(*args, **kwargs)

    contender.call = call


def _compile(contender: Any) -> None:
    compiled: Any = torch.compile(contender.model)
    contender.call = lambda args, kwargs: compiled(*args, **kwargs)


def _accelerate(contender: Any) -> None:
    accelerator = import_module("accelerate").Accelerator(mixed_precision="bf16", cpu=True)
    model, contender.optimizer = accelerator.prepare(contender.model, contender.optimizer)
    contender.call = lambda args, kwargs: model(*args, **kwargs)
    contender.step = accelerator.backward


def _fabric(contender: Any) -> None:
    fabric = import_module("lightning.fabric").Fabric(
        accelerator="cpu", devices=1, precision="bf16-mixed"
    )
    model, contender.optimizer = fabric.setup(contender.model, contender.optimizer)
    contender.call = lambda args, kwargs: model(*args, **kwargs)
    contender.step = fabric.backward


AUTOCAST = "torch.autocast"
PEERS: dict[str, Callable[[Any], None]] = {
    AUTOCAST: _autocast,
    "torch.compile": _compile,
    "HF Accelerate": _accelerate,
    "Lightning Fabric": _fabric,
}
