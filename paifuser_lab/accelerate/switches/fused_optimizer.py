"""Optimizers whose whole update is one kernel, instead of several operators a weight."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch.optim import Optimizer

from .base import Parts, Switch, weights_of

FUSED = (torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.Adagrad)
MISSING = object()


class FusedOptimizer(Switch):
    """`fused=True` in the parameter groups of SGD, Adam, AdamW and Adagrad."""

    name = "fused_optimizer"
    feature = "operator_fusion"
    is_of_calls = False
    is_of_optimizers = True

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.before: dict[Optimizer, list[Any]] = {}  # of its groups, in order
        self._handles: list[Any] = []

    def obstacle(self, parts: Parts) -> str:
        if not any(map(_can_fuse, parts.optimizers)):
            names = ", ".join(type(optimizer).__name__ for optimizer in parts.optimizers)
            return f"{names} has no fused form for these weights, or is fused already"
        return ""

    def turn_on(self, parts: Parts) -> None:
        for optimizer in filter(_can_fuse, parts.optimizers):
            self._fuse(optimizer)
            self._handles += [
                optimizer.register_state_dict_post_hook(self._leave_out),
                optimizer.register_load_state_dict_post_hook(self._fuse),
            ]

    def turn_off(self, parts: Parts) -> None:
        for handle in self._handles:
            handle.remove()
        for optimizer, before in self.before.items():  # `load_state_dict` replaces the groups
            _put_back(optimizer.param_groups, before)
        self.before, self._handles = {}, []

    def _fuse(self, optimizer: Optimizer) -> None:
        """Fuse an optimizer's groups, also those that it has just loaded."""
        groups = optimizer.param_groups
        self.before[optimizer] = [group.get("fused", MISSING) for group in groups]
        for group in groups if _can_fuse(optimizer) else ():
            group["fused"] = True

    def _leave_out(self, optimizer: Optimizer, state: dict[str, Any]) -> None:
        """A saved state is that of the loop without this switch."""
        _put_back(state["param_groups"], self.before[optimizer])


def _put_back(groups: Sequence[dict[str, Any]], before: Sequence[Any]) -> None:
    for group, fused in zip(groups, before, strict=False):
        if fused is MISSING:
            group.pop("fused", None)
        else:
            group["fused"] = fused


def _can_fuse(optimizer: Optimizer) -> bool:
    """Whether every group may be fused: dense floats on a CPU, where the step counts are too."""
    if type(optimizer) not in FUSED:
        return False
    return all(
        weight.is_floating_point()
        and weight.device.type == "cpu"
        and weight.layout is torch.strided
        and not (weight.grad is not None and weight.grad.is_sparse)
        for weight in weights_of(optimizer)
    ) and not any(
        group.get("fused") or group.get("foreach") or group.get("differentiable")
        for group in optimizer.param_groups
    )
