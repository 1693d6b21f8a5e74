"""The time of the whole model, in turn: original, current, and as narrow as allowed."""

from __future__ import annotations

import copy
import hashlib
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch import nn

from ...machine import threads
from ...measure import clock_for, in_turn
from ...records import WholeLatency
from ...workload import Workload, running
from ..groups import CutProblem, cut
from .measure import keep, kept_table, memory_at_hand

SECONDS = 5.0


def whole_latency(problem: CutProblem, narrow: list[int]) -> WholeLatency:
    """The times from the cache, or measured now."""
    work, model = problem.work, problem.model
    likeness = _likeness(work, model, narrow)
    table = kept_table(problem.threads)
    if (cached := table.whole(likeness)) is not None:
        return cached
    models = {"original": work.model, "now": model}
    if (narrowed := _narrowed(problem, narrow)) is not None:
        models["narrow"] = narrowed
    ms = _timed(work, models, problem.threads)
    measured = WholeLatency(
        likeness=likeness,
        original_ms=ms["original"],
        ms=ms["now"],
        narrow_ms=ms.get("narrow"),
    )
    keep(table.model_copy(update={"rows": (), "wholes": (measured,)}))
    return measured


def _timed(work: Workload, models: Mapping[str, nn.Module], count: int) -> dict[str, float]:
    """The ms of each model on the workload's inputs."""
    with threads(count), running(*models.values()), memory_at_hand(work.device):
        calls = {name: call_of(work, model) for name, model in models.items()}
        return in_turn(calls, work.device, SECONDS, clock_for(work.device))


def call_of(work: Workload, model: nn.Module) -> Callable[[], Any]:
    """One run of a model on the workload's inputs."""
    inputs = work.inputs.clone()
    return lambda: inputs(model)


def _narrowed(problem: CutProblem, narrow: list[int]) -> nn.Module | None:
    """A copy without the last units; None where its code fails, as this cut is not checked."""
    removed = {
        unit
        for units, kept in zip(problem.structure.units, narrow, strict=True)
        for unit in units[kept:]
    }
    copied = copy.deepcopy(problem.model)
    try:
        cut(copied, problem.structure, removed)
        with running(copied):
            problem.work.inputs.clone()(copied)
    except Exception:  # whatever its code raises: it cannot be narrowed so
        return None
    return copied


def _likeness(work: Workload, model: nn.Module, narrow: list[int]) -> str:
    """A key of both models by layers, shapes and formats, and of their inputs; not of values."""
    parts = [
        [str(part) for part in (type(module), module, *_shapes(module.parameters()))]
        for module in (work.model, model)
    ]
    text = repr((parts, _shapes(work.inputs.tensors), narrow))
    return f"{work.name} {hashlib.sha256(text.encode()).hexdigest()[:16]}"


def _shapes(tensors: Any) -> list[tuple[Any, ...]]:
    return [
        (tuple(tensor.shape), tensor.dtype, _strides(tensor), tensor.device) for tensor in tensors
    ]


def _strides(tensor: torch.Tensor) -> tuple[int, ...] | None:
    return tensor.stride() if tensor.layout is torch.strided else None
