"""Select the layers to estimate: those with a weight that can be rounded, that are requested, and
that run.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase

import torch
from torch import nn

from ..errors import MeasureError
from ..model.layers import channel_of
from ..workload import Workload
from .subject import Layer

NEVER_RUNS = "it never ran on the sampled batches, so rounding it changes nothing"


def candidates(work: Workload) -> list[tuple[str, nn.Module]]:
    """Every layer of a kind with a weight to round."""
    layers = [
        (name, module)
        for name, module in work.model.named_modules()
        if channel_of(module) is not None
    ]
    if not layers:
        raise MeasureError(
            f"{work.name} has no layer with a weight that can be rounded; it takes a linear layer, "
            "a convolution or an embedding."
        )
    return layers


def chosen(
    layers: Iterable[tuple[str, nn.Module]],
    patterns: str | Iterable[str] | None,
    *,
    what: str = "a weight that can be rounded",
) -> dict[str, nn.Module]:
    """The layers that match a pattern such as 'layer4.*' or are inside a match; all without a
    pattern.
    """
    modules = dict(layers)
    if patterns is None:
        return modules
    selected: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        matches = {
            name
            for name in modules
            if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
        }
        if not matches:
            near = get_close_matches(pattern.replace("*", ""), list(modules), n=3, cutoff=0.4)
            hint = (
                f"; the nearest are {', '.join(near)}"
                if near
                else f"; the first is '{next(iter(modules))}'"
            )
            raise MeasureError(f"the pattern '{pattern}' matches no layer with {what}{hint}.")
        selected |= matches
    return {name: module for name, module in modules.items() if name in selected}


def obstacle(module: nn.Module) -> str | None:
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


def usable_layers(modules: dict[str, nn.Module]) -> dict[str, Layer]:
    """The layers that can be estimated."""
    return {
        name: Layer(name, module, channel_of(module) or 0)
        for name, module in modules.items()
        if obstacle(module) is None
    }
