"""A plain training loop with AdamW and a one-cycle learning rate."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import nn

from .parts import Batches
from .weights import seeded

OnEpoch = Callable[[int, int, float], None]


def train(
    model: nn.Module,
    batches: Batches,
    loss: Callable[[Any, torch.Tensor], torch.Tensor],
    *,
    epochs: int,
    learning_rate: float,
    seed: int,
    on_epoch: OnEpoch | None = None,
) -> None:
    """Train the model in place; `on_epoch(epoch, epochs, mean loss)` is called after each epoch.

    The caller's random state is unchanged. An interrupt, or an exception of `on_epoch`, stops the
    training; the model then keeps its weights and returns to its former training or eval mode.
    """
    was_training = model.training
    optimizer = torch.optim.AdamW(model.parameters(), lr=learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.OneCycleLR(
        optimizer, learning_rate, total_steps=epochs * len(batches)
    )
    try:
        with seeded(seed), torch.enable_grad():
            for epoch in range(1, epochs + 1):
                mean_loss = _one_epoch(model.train(), batches, loss, optimizer, schedule)
                if on_epoch is not None:
                    on_epoch(epoch, epochs, mean_loss)
    finally:
        model.zero_grad(set_to_none=True)
        model.train(was_training)


def _one_epoch(
    model: nn.Module,
    batches: Batches,
    loss: Callable[[Any, torch.Tensor], torch.Tensor],
    optimizer: torch.optim.Optimizer,
    schedule: torch.optim.lr_scheduler.LRScheduler,
) -> float:
    total = 0.0
    for index in torch.randperm(len(batches)).tolist():
        inputs, target = batches[index]
        optimizer.zero_grad(set_to_none=True)
        error = loss(model(inputs), target)
        torch.autograd.backward(error)
        optimizer.step()
        schedule.step()
        total += error.item()
    return total / len(batches)
