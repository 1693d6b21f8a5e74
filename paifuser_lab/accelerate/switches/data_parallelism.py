"""Several processes that train one model: gradients averaged in each step, or weights at times."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ...parallel.averaging import LocalSteps
from ...parallel.exchange import Exchange, Traffic, mean_gradients
from ...parallel.group import Group, agree, facts_of, join
from ...records import readable_bytes
from .base import Parts, Switch, weights_of
from .precision import has_finite_gradients

ALONE = "this process trains alone, so that there is nothing to exchange"


class DataParallelism(Switch):
    """Averages from the second step on; in the first, all become equal to rank 0's state."""

    name = feature = "data_parallelism"
    is_of_calls = False
    is_judged = False

    def __init__(self, options: Mapping[str, Any]) -> None:
        super().__init__(options)
        self.group, self.traffic = Group(), Traffic()
        self.parts, self.local = Parts(), list[LocalSteps]()

    def obstacle(self, parts: Parts) -> str:
        self.group = join()
        if self.group.is_alone:
            wrapped = any(isinstance(model, nn.DataParallel) for model in parts.models)
            is_no_op = wrapped and torch.cuda.device_count() < 2
            return f"{ALONE}; torch.nn.DataParallel does nothing here" if is_no_op else ALONE
        if any(isinstance(model, DistributedDataParallel) for model in parts.models):
            return "the model averages its gradients itself, by DistributedDataParallel"
        return ""

    def turn_on(self, parts: Parts) -> None:
        self.parts = parts
        exchange = Exchange(self.group, self.traffic)
        for model in parts.models:
            agree(self.group, facts_of(model))
        exchange.from_first(list(_state_of(parts)))
        every = int(self.options.get("sync_frequency", 1))
        self.local = [
            LocalSteps(model, exchange, every, is_compressed=True)
            for model in (parts.models if every > 1 else ())
        ]

    def turn_off(self, parts: Parts) -> None:
        for local in self.local:
            local.average(is_exact=True)
        self.local = []

    def before_step(self, optimizer: Optimizer) -> bool:
        if not self.local:
            buffers = [buffer for model in self.parts.models for buffer in model.buffers()]
            mean_gradients(
                Exchange(self.group, self.traffic),
                [weight for weight in weights_of(optimizer) if weight.requires_grad],
                buffers if optimizer is self.parts.optimizers[0] else [],
            )
            # the mean is equal in all processes, which skip a step together
            return has_finite_gradients(optimizer)
        return True

    def after_step(self, optimizer: Optimizer) -> None:
        if optimizer is self.parts.optimizers[0]:
            for local in self.local:
                local.after_step()

    def why(self) -> str:
        sent = readable_bytes(self.traffic.sent_bytes)
        return f"rank {self.group.rank} of {self.group.world} has sent {sent}"


def _state_of(parts: Parts) -> list[Tensor]:
    """Every tensor that a step depends on: weights, buffers, the optimizers' state."""
    tensors: list[Tensor] = []
    for model in parts.models:
        tensors += [tensor.data for tensor in (*model.parameters(), *model.buffers())]
    for optimizer in parts.optimizers:
        for weight in weights_of(optimizer):
            state = optimizer.state.get(weight, {})
            tensors += [value for value in state.values() if isinstance(value, Tensor)]
    return tensors
