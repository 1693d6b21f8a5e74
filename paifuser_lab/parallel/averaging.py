"""What a model's processes average. `LocalSteps`: each rank trains by itself, and the weights are
averaged every so many steps. `EveryStep`: the gradients, in each step, by torch's
DistributedDataParallel: as they are, in bf16, or by PowerSGD.
"""

from __future__ import annotations

import math
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch._C._distributed_c10d import GradBucket
from torch.distributed.algorithms.ddp_comm_hooks import powerSGD_hook as power_sgd
from torch.nn.parallel import DistributedDataParallel
from torch.optim import Optimizer

from ..errors import ParallelError
from .exchange import CompressedMean, Exchange, mean_bytes

POWER_SGD_RANK = 4
POWER_SGD_FROM = 20  # steps; the first gradients change too much to be approximated
MEGABYTE = 1 << 20


class LocalSteps:
    """The weights of one model, averaged every `every` steps.

    What is averaged is how far each rank has come since the last time: differences can be sent in
    int8 with little loss, weights cannot. At first it is averaged after steps 1, 2, 4, 8 …, since
    ranks drift apart fastest then. Statistics such as those of batch-norm are averaged as they are.
    """

    def __init__(
        self, model: nn.Module, exchange: Exchange, every: int, *, is_compressed: bool
    ) -> None:
        self.model, self.exchange, self.every, self.steps = model, exchange, every, 0
        self.weights = {
            name: weight for name, weight in model.named_parameters() if weight.requires_grad
        }

        exchange.from_first([tensor.data for tensor in (*model.parameters(), *model.buffers())])
        self.anchor = self._flat()
        self.compressed = (
            CompressedMean(exchange, self.anchor.numel(), self.anchor.device)
            if is_compressed
            else None
        )

    @property
    def is_due(self) -> bool:
        """Whether the weights are averaged after this many steps."""
        if self.steps < self.every:
            return self.steps > 0 and self.steps & (self.steps - 1) == 0
        return self.steps % self.every == 0

    def after_step(self) -> None:
        """Count a step, and average if it is time."""
        self.steps += 1
        if self.is_due:
            self.average()

    @torch.no_grad()
    def average(self, *, is_exact: bool = False) -> None:
        """Average the weights over the ranks; raises on all of them, before anything is exchanged,
        if one has a weight that is not finite or has taken more steps than another.
        """
        difference = self._flat() - self.anchor
        is_bad = not bool(difference.isfinite().all())
        self.exchange.check_finite(self._first_bad() if is_bad else None, "A weight is", self.steps)
        use = self.exchange.mean if is_exact or self.compressed is None else self.compressed
        self.anchor += use(difference)
        self.exchange.traffic.exchanges += 1
        parts = torch.split(self.anchor, [weight.numel() for weight in self.weights.values()])
        for weight, part in zip(self.weights.values(), parts, strict=True):
            weight.copy_(part.view(weight.shape))
        self.exchange.average_statistics(self.model)

    def state(self) -> dict[str, Tensor]:
        """What the next steps depend on besides weights and optimizer, as tensors."""
        state = {"anchor": self.anchor.clone(), "steps": torch.tensor(self.steps)}
        if self.compressed is not None:
            state["lost"] = self.compressed.lost.clone()
            state["lost_of_mean"] = self.compressed.lost_of_mean.clone()
        return state

    def restore(self, state: dict[str, Tensor]) -> None:
        """Go on from an earlier state of as many ranks."""
        self.anchor.copy_(state["anchor"])
        self.steps = int(state["steps"])
        if self.compressed is not None and "lost" in state:  # else it was not saved in int8
            self.compressed.lost.copy_(state["lost"])
            self.compressed.lost_of_mean.copy_(state["lost_of_mean"])

    def rebase(self, steps: int) -> None:
        """Begin anew from the weights as they are, equal on all ranks, after so many steps."""
        self.anchor.copy_(self._flat())
        self.steps = steps

    def _flat(self) -> Tensor:
        return torch.cat([weight.detach().reshape(-1).float() for weight in self.weights.values()])

    def _first_bad(self) -> str:
        return next(
            name for name, weight in self.weights.items() if not bool(weight.isfinite().all())
        )


class EveryStep:
    """One model whose gradients are averaged while backward still runs. torch's hooks are wrapped,
    so that bytes and waiting are counted, and a gradient that is not finite is found on the rank
    where it began.
    """

    def __init__(self, model: nn.Module, exchange: Exchange, compression: str | None) -> None:
        self.model, self.exchange = model, exchange
        self.names = {id(weight): name for name, weight in model.named_parameters()}
        self.bad: str | None = None  # the first gradient of this rank that is not finite
        self.dtype = torch.bfloat16 if compression == "bf16" else None
        trained = [weight for weight in model.parameters() if weight.requires_grad]
        if compression == "powersgd" and len({weight.dtype for weight in trained}) > 1:
            raise ParallelError(
                "PowerSGD needs weights of one dtype; take gradient_compression='bf16'."
            )
        # with several buckets PowerSGD waits for ever on gloo, whose threads wait inside callbacks
        whole = math.ceil(sum(weight.nbytes for weight in trained) / MEGABYTE) + 1
        exchange.traffic.note(
            sum(tensor.nbytes for tensor in (*model.parameters(), *model.buffers()))
            if exchange.group.rank == 0
            else 0
        )
        self.wrapped = DistributedDataParallel(
            model, bucket_cap_mb=whole if compression == "powersgd" else None
        )
        self.wrapped.broadcast_buffers = False  # after the start; averaged at the end instead
        self.power: Any = None
        if compression == "powersgd":
            self.power = power_sgd.PowerSGDState(
                None,
                matrix_approximation_rank=POWER_SGD_RANK,
                start_powerSGD_iter=POWER_SGD_FROM,
                min_compression_rate=2,
            )
        self.wrapped.register_comm_hook(self, _hook)

    def before_step(self, optimizer: Optimizer) -> None:
        """Raise on every rank, before a weight changes, if the mean gradient is not finite."""
        self.exchange.traffic.exchanges += 1
        gradients = [weight.grad for weight in self.model.parameters() if weight.grad is not None]
        if gradients and not bool(nn.utils.get_total_norm(gradients).isfinite()):
            self.exchange.raise_not_finite(self.bad, "A gradient is")

    def reduce(self, bucket: GradBucket) -> torch.futures.Future[Tensor]:
        """Average one bucket of gradients."""
        self._check(bucket)
        traffic, began = self.exchange.traffic, self.exchange.traffic.clock()
        values = bucket.buffer()
        if self.power is not None:
            future, sent = self._by_power_sgd(bucket)
        else:
            narrow = values if self.dtype is None else values.to(self.dtype)
            sent = narrow.nbytes
            narrow.div_(self.exchange.group.world)
            future = dist.all_reduce(narrow, async_op=True).get_future()
        is_last = bucket.is_last()

        def done(future: torch.futures.Future[Any]) -> Tensor:
            value = future.value()
            mean: Tensor = value[0] if isinstance(value, list) else value
            if mean.data_ptr() != values.data_ptr():
                values.copy_(mean)
            waited = traffic.clock() - began if is_last else 0.0
            traffic.note(mean_bytes(sent, self.exchange.group.world), waited)
            return values

        return future.then(done)  # type: ignore[no-any-return]

    def _by_power_sgd(self, bucket: GradBucket) -> tuple[Any, int]:
        before, size = self.power.total_numel_after_compression, bucket.buffer().element_size()
        future = power_sgd.powerSGD_hook(self.power, bucket)
        sent = self.power.total_numel_after_compression - before
        return future, (sent or bucket.buffer().numel()) * size

    def _check(self, bucket: GradBucket) -> None:
        if bucket.index() == 0:
            self.bad = None
        if self.bad is None and not bool(bucket.buffer().isfinite().all()):
            self.bad = next(
                (
                    f"the gradient of '{self.names[id(weight)]}'"
                    for weight, gradient in zip(
                        bucket.parameters(), bucket.gradients(), strict=True
                    )
                    if not bool(gradient.isfinite().all())
                ),
                None,
            )


def _hook(state: EveryStep, bucket: GradBucket) -> torch.futures.Future[Tensor]:
    return state.reduce(bucket)


# torch compares the classes themselves, and this file's annotations are text
_hook.__annotations__ = {"bucket": GradBucket, "return": torch.futures.Future[Tensor]}
