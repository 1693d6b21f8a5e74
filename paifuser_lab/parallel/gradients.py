"""Gradients averaged between backward and the optimizer's step, for loops that are not wrapped:
`lab.train` and `lab.enable_data_parallelism()`.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import torch
from torch import Tensor, nn
from torch.utils import _pytree as pytree

from ..errors import ParallelError
from ..training.hooks import Synchroniser
from ..workload.data import Batch
from .exchange import Exchange, Traffic
from .group import Group


def mean_gradients(
    exchange: Exchange, weights: Sequence[Tensor], buffers: Iterable[Tensor]
) -> None:
    """Average gradients and floating-point buffers over the ranks, in one exchange; a weight that
    has no gradient on this rank counts as zero.
    """
    statistics = [buffer for buffer in buffers if buffer.is_floating_point()]
    for weight in weights:
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
    values = [weight.grad for weight in weights if weight.grad is not None] + statistics
    with torch.no_grad():
        flat = torch.cat([value.reshape(-1).float() for value in values])
        parts = torch.split(exchange.mean(flat), [value.numel() for value in values])
        for value, part in zip(values, parts, strict=True):
            value.copy_(part.view(value.shape))
    exchange.traffic.exchanges += 1


class BatchShares(Synchroniser):
    """Each rank computes its rows of every batch, so that the mean of the gradients is that of the
    whole batch: the training ends as in one process, but for what depends on a batch's other rows,
    as batch-norm does, and for random numbers.
    """

    def __init__(self, group: Group) -> None:
        self.group, self.traffic, self.stores = group, Traffic(), group.rank == 0
        self.exchange = Exchange(group, self.traffic)

    def part_of(self, batch: Batch) -> tuple[Batch, float]:
        """The rows of this rank, and the factor that gives the mean over all rows."""
        rows, (rank, world) = batch.examples, (self.group.rank, self.group.world)
        if rows < world:
            raise ParallelError(
                f"a batch of {rows} examples is too small for {world} processes; take larger "
                "batches, or fewer processes."
            )
        first, last = rank * rows // world, (rank + 1) * rows // world

        def share(tensor: Tensor) -> Tensor:
            return tensor[first:last] if tensor.ndim and len(tensor) == rows else tensor

        target = pytree.tree_map_only(Tensor, share, batch.target)
        return Batch(batch.inputs.map(share), target), (last - first) * world / rows

    def mean_loss(self, loss: float) -> float:
        """The loss of the whole batch."""
        value = torch.tensor(loss, dtype=torch.float64, device=self.group.device)
        return float(self.exchange.mean(value))

    def mean_gradients(self, model: nn.Module, weights: Sequence[Tensor]) -> None:
        """Average the gradients; the step is counted."""
        mean_gradients(self.exchange, weights, model.buffers())
        self.traffic.end_step()
