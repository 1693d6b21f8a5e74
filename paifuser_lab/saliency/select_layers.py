"""Select the layers to estimate: of a kind, requested, with a weight that can be read, that run."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from difflib import get_close_matches
from fnmatch import fnmatchcase

import torch
from torch import nn

from ..errors import MeasureError
from ..workload import Workload
from .subject import Layer, Subject

NEVER_RUNS = "it never ran on the sampled batches"


@dataclass(frozen=True)
class Selection:
    """The requested layers, those that can be estimated, and why the others cannot."""

    names: list[str]
    layers: dict[str, Layer]
    reasons: dict[str, str]

    def drop_idle(self, subject: Subject) -> None:
        """Drop the layers that are never called: they would seem unimportant; raises where no layer
        is left.
        """
        self._check_some_left(subject)
        calls = subject.watch()
        self.reasons.update({name: NEVER_RUNS for name, count in calls.items() if not count})
        subject.layers = {name: layer for name, layer in subject.layers.items() if calls[name]}
        self._check_some_left(subject)

    def _check_some_left(self, subject: Subject) -> None:
        if not subject.layers:
            name, reason = next(iter(self.reasons.items()))
            raise MeasureError(
                f"none of the requested layers of {subject.work.name} can be estimated; '{name}': "
                f"{reason}."
            )


def select_layers(
    work: Workload,
    patterns: str | Iterable[str] | None,
    channel_of: Callable[[nn.Module], int | None],
    what: str,
) -> Selection:
    """The layers with a channel dimension that match a pattern such as 'layer4.*' or are inside a
    match; all without a pattern.
    """
    modules = {
        name: module
        for name, module in work.model.named_modules()
        if channel_of(module) is not None
    }
    if not modules:
        raise MeasureError(
            f"{work.name} has no layer with {what}; it takes a linear layer, a convolution or an "
            "embedding."
        )
    names = list(modules) if patterns is None else _matching(list(modules), patterns, what)
    reasons = {name: reason for name in names if (reason := _obstacle(modules[name]))}
    layers = {
        name: Layer(name, modules[name], channel_of(modules[name]) or 0)
        for name in names
        if name not in reasons
    }
    return Selection(names, layers, reasons)


def _matching(names: list[str], patterns: str | Iterable[str], what: str) -> list[str]:
    selected: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matches = {
            name
            for name in names
            if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
        }
        if not matches:
            near = get_close_matches(pattern.replace("*", ""), names, n=3, cutoff=0.4)
            hint = f"the nearest are {', '.join(near)}" if near else f"the first is '{names[0]}'"
            raise MeasureError(f"the pattern '{pattern}' matches no layer with {what}; {hint}.")
        selected |= matches
    return [name for name in names if name in selected]


def _obstacle(module: nn.Module) -> str | None:
    """Why a layer cannot be estimated; None where it can."""
    weight = module._parameters.get("weight")
    if weight is None:
        return "its weight is computed from others at each call; bake it in first"
    if weight.dtype not in (torch.float32, torch.float64):
        return (
            f"its weight is in {str(weight.dtype).removeprefix('torch.')} already; estimates "
            "need the model in fp32"
        )
    if weight.numel() == 0:
        return "its weight is empty"
    if weight.layout is not torch.strided:
        return "its weight is sparse; make it dense"
    return None


def check_methods(methods: Iterable[object], known: Iterable[str], seconds: float | None) -> None:
    """Raise for an unknown method, and where no time is left to estimate."""
    names = list(known)
    for method in methods:
        if method not in names:
            raise MeasureError(
                f"{method!r} is no method; there are {', '.join(names)}{nearest(method, names)}."
            )
    if seconds is not None and not seconds > 0:
        raise MeasureError(f"{seconds} seconds leave no time to estimate; give more than 0.")


def nearest(name: object, names: Iterable[str]) -> str:
    """The name that was probably meant, as a hint; '' where none is near."""
    near = get_close_matches(str(name), list(names), n=1, cutoff=0.5)
    return f" (did you mean {near[0]}?)" if near else ""
