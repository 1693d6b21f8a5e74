"""Weights, gradients and optimizer state divided among the ranks, by torch's FSDP2.

With `shard="full"` a block's weights are gathered for its computation alone; otherwise they stay
from forward to backward, and what falls by the number of ranks is gradients and optimizer state
(ZeRO). Every exchange is counted, and gradients are checked before they are.
"""

from __future__ import annotations

import copy
from collections import Counter
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.fsdp import FSDPModule, MixedPrecisionPolicy, fully_shard
from torch.distributed.fsdp._fully_shard._fsdp_collectives import (
    DefaultAllGather,
    DefaultReduceScatter,
)
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.utils.weak import WeakTensorKeyDictionary

from ..errors import ParallelError
from .exchange import Exchange


class Sharded:
    """A model whose weights are divided; `whole` gives it back as it was."""

    def __init__(
        self, model: nn.Module, exchange: Exchange, *, is_full: bool, is_compressed: bool
    ) -> None:
        self.model, self.exchange = model, exchange
        self.bad: str | None = None  # the first block of this rank whose gradient is not finite
        exchange.from_first([tensor.data for tensor in (*model.parameters(), *model.buffers())])
        self.plain, self.stand_ins = _without_weights(model)
        self.before = WeakTensorKeyDictionary()  # names; values that nobody holds are freed
        self.before.update({weight: name for name, weight in model.named_parameters()})
        self.frozen = {
            name for name, weight in model.named_parameters() if not weight.requires_grad
        }
        group = exchange.group
        mesh = init_device_mesh(group.device.type, (group.world,))
        policy = MixedPrecisionPolicy(reduce_dtype=torch.bfloat16 if is_compressed else None)
        blocks = _blocks(model) if is_full else []
        for _, block in blocks:
            fully_shard(block, mesh=mesh, mp_policy=policy)
        fully_shard(model, mesh=mesh, mp_policy=policy, reshard_after_forward=is_full)
        for name, module in [*blocks, ("", model)]:
            assert isinstance(module, FSDPModule)
            module.set_custom_all_gather(_Gathering(exchange))
            module.set_custom_reduce_scatter(_Reducing(self, name))

    def adopt(self, optimizer: Optimizer) -> None:
        """Let an optimizer that was made before train what its weights became."""
        after = dict(self.model.named_parameters())
        for group in optimizer.param_groups:
            group["params"] = [
                after[self.before[weight]] if weight in self.before else weight
                for weight in group["params"]
            ]

    def check_optimizer(self, optimizer: Optimizer) -> None:
        """Raise if an optimizer trains the weights of before, which the model no longer has."""
        weights = (weight for group in optimizer.param_groups for weight in group["params"])
        if any(weight in self.before for weight in weights):
            raise ParallelError(
                "The optimizer was made before the model's weights were divided and trains what "
                "the model no longer has; make it after prepare(), or give it to "
                "prepare(model, optimizer)."
            )

    def before_step(self, optimizer: Optimizer) -> None:
        """Raise on every rank, before a weight changes, if a gradient is not finite."""
        self.exchange.traffic.exchanges += 1
        bad, self.bad = self.bad, None
        self.exchange.check_finite(bad, "A gradient is")

    @torch.no_grad()
    def whole(self) -> nn.Module:
        """The model with all weights on every rank, as an ordinary module."""
        full = {}
        for name, weight in self.model.named_parameters():
            assert isinstance(weight, DTensor)
            local = weight.to_local()
            with self.exchange.traffic.waiting(local.nbytes * (self.exchange.group.world - 1)):
                full[name] = weight.full_tensor().detach().clone()
        memo: dict[int, Any] = {
            id(stand_in): nn.Parameter(full[name], requires_grad=name not in self.frozen)
            for name, stand_in in self.stand_ins.items()
        }
        model = copy.deepcopy(self.plain, memo)
        self.exchange.average_statistics(self.model)
        for buffer, own in zip(model.buffers(), self.model.buffers(), strict=True):
            buffer.copy_(own)
        return model


class _Gathering(DefaultAllGather):
    """Gathers a block's weights, and counts it."""

    def __init__(self, exchange: Exchange) -> None:
        self.exchange = exchange

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        async_op: bool = False,
    ) -> dist.Work | None:
        sent = output_tensor.nbytes - output_tensor.nbytes // self.exchange.group.world
        with self.exchange.traffic.waiting(sent):
            return super().__call__(output_tensor, input_tensor, group, async_op)


class _Reducing(DefaultReduceScatter):
    """Averages a block's gradients, each rank its part, and counts it."""

    def __init__(self, owner: Sharded, block: str) -> None:
        self.owner, self.block = owner, block

    def __call__(
        self,
        output_tensor: Tensor,
        input_tensor: Tensor,
        group: dist.ProcessGroup,
        op: Any,
        async_op: bool = False,
    ) -> dist.Work:
        if self.owner.bad is None and not bool(input_tensor.isfinite().all()):
            self.owner.bad = f"the gradient of {repr(self.block) if self.block else 'the model'}"
        with self.owner.exchange.traffic.waiting(input_tensor.nbytes - output_tensor.nbytes):
            return super().__call__(output_tensor, input_tensor, group, op, async_op)


def _blocks(model: nn.Module) -> list[tuple[str, nn.Module]]:
    """The children of the model's lists of layers; one that shares a weight with another part of
    the model stays in the model's own group, since tied weights have to be divided together.
    """
    holders = Counter(id(weight) for _, weight in model.named_parameters(remove_duplicate=False))
    found: list[tuple[str, nn.Module]] = []
    for path, module in model.named_modules():
        if not isinstance(module, nn.ModuleList | nn.Sequential):
            continue
        if any(path == name or path.startswith(f"{name}.") for name, _ in found):
            continue
        found += [
            (f"{path}.{name}" if path else name, child)
            for name, child in module.named_children()
            if any(True for _ in child.parameters())
            and all(holders[id(weight)] == 1 for weight in child.parameters())
        ]
    return found


def _without_weights(model: nn.Module) -> tuple[nn.Module, dict[str, nn.Parameter]]:
    """A copy of the model whose weights have no values, and these by name; ties stay."""
    stand_ins = {
        name: nn.Parameter(torch.empty_like(weight, device="meta"), requires_grad=False)
        for name, weight in model.named_parameters()
    }
    own = dict(model.named_parameters())
    memo: dict[int, Any] = {id(own[name]): stand_in for name, stand_in in stand_ins.items()}
    return copy.deepcopy(model, memo), stand_ins
