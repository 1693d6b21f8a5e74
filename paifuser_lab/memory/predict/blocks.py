"""Repeated blocks of a model, and checkpointing of them. Built on torch.utils.checkpoint."""

from __future__ import annotations

from collections import defaultdict
from functools import partial
from typing import Any

from torch import nn
from torch.utils.checkpoint import checkpoint

from ...errors import MeasureError

MIN_REPEATS = 2


def repeated_blocks(model: nn.Module) -> tuple[str, ...]:
    """The outermost modules of repeated composite classes, such as a transformer's blocks."""
    by_class: dict[type[nn.Module], list[str]] = defaultdict(list)
    for name, module in model.named_modules():
        if name and _is_composite(module):
            by_class[type(module)].append(name)
    names = {
        name for members in by_class.values() if len(members) >= MIN_REPEATS for name in members
    }
    outermost: list[str] = []
    for name, _ in model.named_modules():
        if name in names and not name.startswith(tuple(f"{block}." for block in outermost)):
            outermost.append(name)
    return tuple(outermost)


def checkpoint_layers(model: nn.Module, layers: tuple[str, ...]) -> None:
    """Let these layers compute their activations again in the backward pass; changes the model."""
    known = dict(model.named_modules())
    for layer in layers:
        if not layer or layer not in known:
            raise MeasureError(
                f"checkpoint={layer!r} is no layer of this {type(model).__name__}; its blocks are "
                f"{', '.join(repeated_blocks(model)[:8]) or 'none'}."
            )
        module: Any = known[layer]
        module.forward = partial(
            checkpoint, module.forward, use_reentrant=False, preserve_rng_state=False
        )


def _is_composite(module: nn.Module) -> bool:
    """Whether it is a class of its own around other modules; a plain container is not."""
    is_plain = type(module) in (nn.Sequential, nn.ModuleList, nn.ModuleDict)
    return not is_plain and len(list(module.children())) > 1
