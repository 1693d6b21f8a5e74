"""Means over all ranks: of vectors as they are, in bf16, or in int8 with what rounding lost added
to the next. Every exchange is counted: its bytes, and how long this rank waited for it.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from ..errors import ParallelError
from .group import Group, agree, facts_of, join

BLOCK = 256  # values that share a scale
LEVELS = 127


class Traffic:
    """A rank's bytes sent, its time waiting and the rest of its time, a row for each step."""

    def __init__(self, clock: Callable[[], float] = time.perf_counter) -> None:
        self.clock = clock
        self.rows: list[tuple[int, float, float]] = []  # bytes, seconds waited, seconds computed
        self.start_bytes = self.end_bytes = self.exchanges = 0
        self._sent, self._waited, self._since = 0, 0.0, clock()

    @property
    def sent_bytes(self) -> int:
        """All bytes so far."""
        rows = sum(sent for sent, *_ in self.rows)
        return self.start_bytes + rows + self.end_bytes + self._sent

    def steps(self) -> dict[str, Any]:
        """What a report says of each step."""
        return {
            "sent_bytes": tuple(sent for sent, *_ in self.rows),
            "waited_ms": tuple(1e3 * waited for _, waited, _ in self.rows),
            "computed_ms": tuple(1e3 * computed for *_, computed in self.rows),
            "exchanges": self.exchanges,
        }

    def note(self, sent: float, waited_s: float = 0.0) -> None:
        """Count what was sent and waited for in this step."""
        self._sent, self._waited = self._sent + round(sent), self._waited + waited_s

    def begin(self) -> None:
        """The first step begins now."""
        self.start_bytes += self._sent
        self._sent, self._waited, self._since = 0, 0.0, self.clock()

    def end_step(self) -> None:
        """The step is over."""
        now = self.clock()
        computed = max(0.0, now - self._since - self._waited)
        self.rows.append((self._sent, self._waited, computed))
        self._sent, self._waited, self._since = 0, 0.0, now

    def end(self) -> None:
        """What was sent since the last step belongs to the end."""
        self.end_bytes += self._sent
        self._sent = 0

    @contextmanager
    def waiting(self, sent: float) -> Iterator[None]:
        """Count an exchange of so many bytes and the time that the block takes."""
        began = self.clock()
        yield
        self.note(sent, self.clock() - began)


class Exchange:
    """The exchanges of one group."""

    def __init__(self, group: Group, traffic: Traffic) -> None:
        self.group, self.traffic = group, traffic

    def mean(self, values: Tensor) -> Tensor:
        """The mean over the ranks, in place."""
        with self.traffic.waiting(mean_bytes(values.nbytes, self.group.world)):
            dist.all_reduce(values)
        return values.div_(self.group.world)

    def average_statistics(self, model: nn.Module) -> None:
        """Average floating-point buffers over the ranks, such as the statistics of batch-norm."""
        for buffer in model.buffers():
            if buffer.is_floating_point():
                buffer.copy_(self.mean(buffer.detach().clone()))

    def from_first(self, tensors: Sequence[Tensor]) -> None:
        """Give every rank the values of rank 0."""
        for tensor in tensors:
            sent = tensor.nbytes if self.group.rank == 0 else 0
            with self.traffic.waiting(sent):
                dist.broadcast(tensor, 0)

    def check_finite(self, bad: str | None, what: str, steps: int = 0) -> None:
        """Raise on every rank if one names what is not finite on it, or if they differ in steps."""
        flags = torch.tensor(
            [float(bad is not None), steps, -steps], dtype=torch.float64, device=self.group.device
        )
        with self.traffic.waiting(mean_bytes(flags.nbytes, self.group.world)):
            dist.all_reduce(flags, op=dist.ReduceOp.MAX)
        is_bad, most, least = flags.tolist()
        if most != -least:
            raise ParallelError(
                f"rank {self.group.rank} has taken {steps} steps when weights were to be averaged, "
                f"and the ranks {-least:g} to {most:g}: give all of them as many batches, such as "
                "by prepare(model, optimizer, loader)."
            )
        if is_bad:
            self.raise_not_finite(bad, what)

    def raise_not_finite(self, bad: str | None, what: str) -> None:
        """Raise the same error on every rank; each gives what is not finite on it, or None."""
        names: list[Any] = [None] * self.group.world
        dist.all_gather_object(names, bad)
        found = [f"rank {rank} in {name}" for rank, name in enumerate(names) if name is not None]
        raise ParallelError(
            f"{what} not finite on {'; '.join(found) or 'a rank that cannot be told'}; it was not "
            "exchanged into the weights. Look at that rank's data, or lower the learning rate."
        )


def make_equal(model: nn.Module) -> None:
    """Give every rank the weights and buffers of rank 0, where all have the same model; DTensors,
    which are divided already, stay.
    """
    group = join()
    agree(group, facts_of(model))
    tensors = [tensor.data for tensor in (*model.parameters(), *model.buffers())]
    whole = [tensor for tensor in tensors if type(tensor) is Tensor]
    Exchange(group, Traffic()).from_first(whole)


class CompressedMean:
    """The mean of a vector over the ranks, sent in int8 with a scale for each block of 256.

    Every rank gets its chunk of all vectors, averages it, and sends the mean to all: as many bytes
    as an all-reduce of int8. What rounding loses, here and of the mean, is added the next time.
    """

    def __init__(self, exchange: Exchange, size: int, device: torch.device) -> None:
        self.exchange, self.size = exchange, size
        world = exchange.group.world
        self.chunk = -(-size // (world * BLOCK)) * BLOCK
        self.lost = torch.zeros(self.chunk * world, device=device)
        self.lost_of_mean = torch.zeros(self.chunk, device=device)

    def __call__(self, values: Tensor) -> Tensor:
        """The mean, equal on every rank to the bit."""
        world = self.exchange.group.world
        own = self.lost.clone()
        own[: self.size] += values
        codes, scales = to_int8(own)
        self.lost = own - from_int8(codes, scales)
        chunks = from_int8(self._transposed(codes), self._transposed(scales))
        mean = chunks.view(world, self.chunk).mean(0) + self.lost_of_mean
        codes, scales = to_int8(mean)
        self.lost_of_mean = mean - from_int8(codes, scales)
        return from_int8(self._gathered(codes), self._gathered(scales))[: self.size]

    def _transposed(self, values: Tensor) -> Tensor:
        """Of every rank the part that is this rank's to average."""
        received = torch.empty_like(values)
        with self.exchange.traffic.waiting(self._share(values.nbytes)):
            dist.all_to_all_single(received, values)
        return received

    def _gathered(self, values: Tensor) -> Tensor:
        world = self.exchange.group.world
        parts = [torch.empty_like(values) for _ in range(world)]
        with self.exchange.traffic.waiting(self._share(values.nbytes * world)):
            dist.all_gather(parts, values)
        return torch.cat(parts)

    def _share(self, size: int) -> float:
        world = self.exchange.group.world
        return size * (world - 1) / world


def mean_gradients(
    exchange: Exchange, weights: Sequence[Tensor], buffers: Iterable[Tensor]
) -> None:
    """Average gradients and float buffers in one exchange; a gradient that some processes have not
    counts as zero there, and one that no process has stays missing.
    """
    missing = [number for number, weight in enumerate(weights) if weight.grad is None]
    has_gradient = torch.tensor([float(weight.grad is not None) for weight in weights])
    statistics = [buffer for buffer in buffers if buffer.is_floating_point()]
    for weight in weights:
        if weight.grad is None:
            weight.grad = torch.zeros_like(weight)
    values = [weight.grad for weight in weights if weight.grad is not None] + statistics
    with torch.no_grad():
        values.append(has_gradient.to(values[0].device))
        flat = torch.cat([value.reshape(-1).float() for value in values])
        parts = torch.split(exchange.mean(flat), [value.numel() for value in values])
        for value, part in zip(values, parts, strict=True):
            value.copy_(part.view(value.shape))
    shares = values[-1].tolist() if missing else []  # read only where needed: a device waits
    for number in missing:
        if not shares[number]:
            weights[number].grad = None
    exchange.traffic.exchanges += 1


def to_int8(values: Tensor) -> tuple[Tensor, Tensor]:
    """Values in int8, and the scale of each block; the length is a multiple of the block."""
    blocks = values.view(-1, BLOCK)
    scales = blocks.abs().amax(1, keepdim=True) / LEVELS
    codes = (blocks / scales.clamp_min(torch.finfo(values.dtype).tiny)).round_()
    return codes.clamp_(-LEVELS, LEVELS).to(torch.int8).view(-1), scales.view(-1)


def from_int8(codes: Tensor, scales: Tensor) -> Tensor:
    """The values of these codes."""
    return (codes.view(-1, BLOCK) * scales.view(-1, 1)).view(-1)


def mean_bytes(size: int, world: int) -> float:
    """What one of `world` ranks sends when a mean of this many bytes is formed by all."""
    return 2 * (world - 1) / world * size
