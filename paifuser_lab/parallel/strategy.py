"""Data parallelism around a training loop that stays as it is: `DataParallel(…).prepare(model)`.

Steps are seen by torch's hooks of optimizers, so that optimizer and loader may be left out.
"""

from __future__ import annotations

from collections.abc import Sized
from typing import Any, Literal

import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torch.optim import Optimizer
from torch.optim.optimizer import (
    register_optimizer_step_post_hook,
    register_optimizer_step_pre_hook,
)
from torch.utils.data import DataLoader

from ..arguments import check_count
from ..errors import ParallelError
from ..records import ParallelReport
from .averaging import EveryStep, LocalSteps
from .exchange import Exchange, Traffic
from .group import TIMEOUT_S, Group, agree, facts_of, join
from .loaders import SharedExamples, divided_loader, shared_loader
from .sharded import Sharded

Compression = Literal["bf16", "int8", "powersgd"]
FITTING: dict[str, tuple[Compression, ...]] = {  # the first is what True means
    "local": ("int8",),
    "every": ("bf16", "powersgd"),
    "sharded": ("bf16",),
}
WHEN = {
    "local": "where weights are averaged every few steps",
    "every": "where gradients are averaged in each step",
    "sharded": "where optimizer state is divided",
}


class DataParallel:
    """Train one model in several processes, each on its part of the data.

        strategy = DataParallel(sync_frequency=32, gradient_compression=True)
        model = strategy.prepare(model)  # or: model, optimizer, loader = strategy.prepare(…)
        for images, labels in loader:  # the loop as it is
            ...
        model = strategy.finish()  # equal on all ranks
        strategy.report()

    The processes are those of `parallel.run`, of `paifuser-lab train SCRIPT --processes N`, or of
    torchrun; in a single one everything stays as it is. With `sync_frequency` above 1 each rank
    takes steps by itself, and the weights are averaged every so many; with 1 the gradients are, in
    each step. `gradient_compression` sends int8 differences in the first case and bf16 in the
    second; "powersgd" sends less. `zero_redundancy_optimizer` divides gradients and optimizer state
    among the ranks, `shard="full"` the weights, too; both exchange in each step. `shared_memory`
    holds the loader's examples once for all ranks of a machine.
    """

    def __init__(
        self,
        sync_frequency: int = 32,
        gradient_compression: bool | Compression = True,
        zero_redundancy_optimizer: bool = False,
        shared_memory: bool = False,
        shard: Literal["full"] | None = None,
        *,
        seed: int = 0,
        timeout_s: float = TIMEOUT_S,
    ) -> None:
        check_count("sync_frequency", sync_frequency, error=ParallelError)
        if shard not in (None, "full"):
            raise ParallelError(f"shard={shard!r} is unknown; give 'full', or leave it out.")
        self.sync_frequency, self.shard, self.seed = sync_frequency, shard, seed
        self.shared_memory, self.timeout_s = shared_memory, timeout_s
        is_sharded = shard is not None or zero_redundancy_optimizer
        self.kind = "sharded" if is_sharded else "every" if sync_frequency == 1 else "local"
        self.compression = _compression(self.kind, gradient_compression)
        self.group, self.traffic = Group(), Traffic()
        self.method: LocalSteps | EveryStep | Sharded | None = None  # alone it stays None
        self.model: nn.Module | None = None
        self.optimizers: list[Optimizer] = []  # the first one's steps are counted
        self.examples: SharedExamples | None = None
        self._own: set[int] = set()
        self._handles: list[Any] = []

    @property
    def name(self) -> str:
        """The strategy in words."""
        sent = {"bf16": "in bf16", "int8": "in int8", "powersgd": "by PowerSGD", None: "in fp32"}
        how, every = sent[self.compression], self.sync_frequency
        whole = "weights, " if self.shard else ""
        kinds = {
            "local": f"weights averaged every {every} steps, {how}",
            "every": f"gradients averaged {how}",
            "sharded": f"{whole}gradients and optimizer state divided, averaged {how}",
        }
        return "one process" if self.group.is_alone else kinds[self.kind]

    def prepare(
        self,
        model: nn.Module,
        optimizer: Optimizer | None = None,
        loader: DataLoader[Any] | None = None,
    ) -> Any:
        """The model, and where given the optimizer and the loader, ready for a loop of this rank.

        Weights become those of rank 0. Before anything else the ranks compare model, options and
        the number of examples; a difference is an error on all of them.
        """
        if self.model is not None:
            raise ParallelError("prepare() was called before; make another DataParallel.")
        if not isinstance(model, nn.Module):
            raise ParallelError(f"prepare takes a model, not a {type(model).__name__}.")
        if not any(weight.requires_grad for weight in model.parameters()):
            raise ParallelError("The model has no weight that is trained; set requires_grad.")
        self.group = join(timeout_s=self.timeout_s)
        if not self.group.is_alone:
            agree(self.group, self._facts(model, loader))
        if loader is not None:
            loader = self._prepared_loader(loader)
        prepared = model if self.group.is_alone else self._started(model)
        self.model = model
        self._own = {id(weight) for weight in model.parameters()}
        if optimizer is not None:
            self._adopt(optimizer)
        self._handles = [
            register_optimizer_step_pre_hook(self._before),
            register_optimizer_step_post_hook(self._after),
        ]
        self.traffic.begin()
        given = [prepared, *([] if optimizer is None else [optimizer])]
        given += [] if loader is None else [loader]
        return given[0] if len(given) == 1 else tuple(given)

    def finish(self) -> nn.Module:
        """Average once more, so that all ranks end equal, and return the plain model."""
        model = self._prepared()
        for handle in self._handles:
            handle.remove()
        if self._handles and not self.group.is_alone:
            if isinstance(self.method, LocalSteps):
                self.method.average(is_exact=True)
            elif isinstance(self.method, EveryStep):
                self.method.exchange.average_statistics(self.method.model)
            elif isinstance(self.method, Sharded):
                self.model = model = self.method.whole()
            self.traffic.end()
        self._handles = []
        return model

    def report(self) -> ParallelReport:
        """What this rank has sent, waited for and computed so far."""
        model, examples = self._prepared(), self.examples
        return ParallelReport(
            strategy=self.name,
            rank=self.group.rank,
            world=self.group.world,
            start_bytes=self.traffic.start_bytes,
            end_bytes=self.traffic.end_bytes,
            **self.traffic.steps(),
            weights_bytes=sum(_local(weight).nbytes for weight in model.parameters()),
            optimizer_bytes=sum(map(_state_bytes, self.optimizers)),
            mapped_bytes=0 if examples is None else examples.mapped_bytes,
            copied_bytes=0 if examples is None else examples.copied_bytes,
            notes=self._notes(),
        )

    def _prepared(self) -> nn.Module:
        if self.model is None:
            raise ParallelError("There is no model yet; call prepare(model) first.")
        return self.model

    def _prepared_loader(self, loader: DataLoader[Any]) -> DataLoader[Any]:
        if self.group.is_alone and not self.shared_memory:
            return loader
        loader = divided_loader(loader, self.group, self.seed)
        if self.shared_memory:
            loader = shared_loader(loader, self.group)
            assert isinstance(loader.dataset, SharedExamples)
            self.examples = loader.dataset
        return loader

    def _facts(self, model: nn.Module, loader: DataLoader[Any] | None) -> dict[str, Any]:
        facts: dict[str, Any] = {"torch": torch.__version__, "the strategy": self.name}
        if loader is not None and isinstance(loader.dataset, Sized):
            facts["the number of examples"] = len(loader.dataset)
            facts["the batch size"] = loader.batch_size
        return facts | facts_of(model)

    def _started(self, model: nn.Module) -> nn.Module:
        exchange, is_compressed = Exchange(self.group, self.traffic), self.compression is not None
        if self.kind == "local":
            self.method = LocalSteps(
                model, exchange, self.sync_frequency, is_compressed=is_compressed
            )
            return model
        if self.kind == "every":
            self.method = EveryStep(model, exchange, self.compression)
            return self.method.wrapped
        self.method = Sharded(
            model, exchange, is_full=self.shard == "full", is_compressed=is_compressed
        )
        return model

    def _adopt(self, optimizer: Optimizer) -> None:
        if isinstance(self.method, Sharded):
            if optimizer.state:
                raise ParallelError(
                    "The optimizer has taken steps already; prepare() it before its first."
                )
            self.method.adopt(optimizer)
        self.optimizers.append(optimizer)

    def _is_ours(self, optimizer: Optimizer) -> bool:
        """Whether an optimizer trains this model; it is remembered at its first step."""
        if optimizer in self.optimizers:
            return True
        weights = {id(weight) for group in optimizer.param_groups for weight in group["params"]}
        if isinstance(self.method, Sharded):
            self.method.check_optimizer(optimizer)
        if not weights & self._own:
            return False
        self.optimizers.append(optimizer)
        return True

    def _before(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if self._is_ours(optimizer) and isinstance(self.method, EveryStep | Sharded):
            self.method.before_step(optimizer)

    def _after(self, optimizer: Optimizer, args: Any, kwargs: Any) -> None:
        if not self.optimizers or optimizer is not self.optimizers[0]:
            return
        if isinstance(self.method, LocalSteps):
            self.method.after_step()
        self.traffic.end_step()

    def _notes(self) -> tuple[str, ...]:
        if self.group.is_alone:
            return ("there is one process, so that nothing is exchanged",)
        if self.kind == "sharded" and self.sync_frequency > 1:
            return ("what is divided is exchanged in every step, not every sync_frequency",)
        return ()


def _compression(kind: str, asked: bool | str) -> Compression | None:
    """How values are sent."""
    known: dict[Any, Compression | None] = {name: name for name in FITTING[kind]}
    known |= {True: FITTING[kind][0], False: None}
    if asked in known:
        return known[asked]
    fitting = " or ".join(map(repr, FITTING[kind]))
    raise ParallelError(
        f"gradient_compression={asked!r} does not fit here: {WHEN[kind]} it is {fitting}, True or "
        "False."
    )


def _local(tensor: Tensor) -> Tensor:
    return tensor.to_local() if isinstance(tensor, DTensor) else tensor


def _state_bytes(optimizer: Optimizer) -> int:
    return sum(
        _local(value).nbytes
        for state in optimizer.state.values()
        for value in state.values()
        if isinstance(value, Tensor)
    )
