"""Which layers are judged: those with a weight that can be rounded, that are asked for, and that
run.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import get_close_matches
from fnmatch import fnmatchcase

import torch
from torch import nn

from ..errors import MeasureError
from ..formats import channel_of
from ..workload import Workload
from .subject import Layer

NEVER_RUNS = "it never ran on the batches that were looked at, so that rounding it changes nothing"


def candidates(work: Workload) -> list[tuple[str, nn.Module]]:
    """Every layer of a kind that has a weight to round."""
    found = [
        (name, module)
        for name, module in work.model.named_modules()
        if channel_of(module) is not None
    ]
    if not found:
        raise MeasureError(
            f"{work.name} has no layer with a weight that can be rounded; it takes a linear layer, "
            "a convolution or an embedding."
        )
    return found


def chosen(
    found: Iterable[tuple[str, nn.Module]],
    patterns: str | Iterable[str] | None,
    *,
    what: str = "a weight that can be rounded",
) -> dict[str, nn.Module]:
    """Those that a pattern such as 'layer4.*' picks, itself or as a part of what it picks; all
    without a pattern.
    """
    modules = dict(found)
    if patterns is None:
        return modules
    wanted: set[str] = set()
    for pattern in [patterns] if isinstance(patterns, str) else patterns:
        picked = {
            name
            for name in modules
            if fnmatchcase(name, pattern) or fnmatchcase(name, f"{pattern}.*")
        }
        if not picked:
            near = get_close_matches(pattern.replace("*", ""), list(modules), n=3, cutoff=0.4)
            hint = (
                f"; the nearest are {', '.join(near)}"
                if near
                else f"; the first is '{next(iter(modules))}'"
            )
            raise MeasureError(f"the pattern '{pattern}' matches no layer with {what}{hint}.")
        wanted |= picked
    return {name: module for name, module in modules.items() if name in wanted}


def why_not(module: nn.Module) -> str | None:
    """Why a layer cannot be judged, if it cannot."""
    weight = module._parameters.get("weight")
    if weight is None:
        return "its weight is computed from others at each call; bake it in first"
    if weight.dtype not in (torch.float32, torch.float64):
        return (
            f"its weight is in {str(weight.dtype).removeprefix('torch.')} already; the model is "
            "judged in fp32"
        )
    if weight.numel() == 0:
        return "its weight is empty"
    if weight.layout is not torch.strided:
        return "its weight is sparse; make it dense"
    return None


def usable_layers(modules: dict[str, nn.Module]) -> dict[str, Layer]:
    """The layers that can be judged."""
    return {
        name: Layer(name, module, channel_of(module) or 0)
        for name, module in modules.items()
        if why_not(module) is None
    }
