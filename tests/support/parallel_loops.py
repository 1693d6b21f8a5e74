"""What the ranks of the parallel tests execute: many checks in one launch, as starting costs
seconds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import DataLoader, TensorDataset

from benchmarks.parallel_equal import EqualRow, average, compared
from paifuser_lab.errors import PaifuserError
from paifuser_lab.parallel import DataParallel, join
from paifuser_lab.parallel.exchange import LEVELS, CompressedMean, Exchange, Traffic

STEPS = 6
STRATEGIES: dict[str, dict[str, Any]] = {
    "ddp": {"sync_frequency": 1, "gradient_compression": False},
    "bf16": {"sync_frequency": 1},
    "powersgd": {"sync_frequency": 1, "gradient_compression": "powersgd"},
    "local": {"sync_frequency": 4, "gradient_compression": False},
    "int8": {"sync_frequency": 4},
    "zero": {"zero_redundancy_optimizer": True, "gradient_compression": False},
    "full": {"shard": "full", "gradient_compression": False},
}
EVERY_STEP = ("ddp", "bf16", "powersgd", "zero", "full")


class Tied(nn.Module):
    """A decoder of two blocks whose last layer is its embedding."""

    def __init__(self) -> None:
        super().__init__()
        self.embedding = nn.Embedding(16, 8)
        self.blocks = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 16), nn.GELU(), nn.Linear(16, 8))
            for _ in range(2)
        )
        self.head = nn.Linear(8, 16, bias=False)
        self.head.weight = self.embedding.weight

    def forward(self, tokens: Tensor) -> Tensor:
        hidden = self.embedding(tokens)
        for block in self.blocks:
            hidden = hidden + block(hidden)
        return self.head(hidden)


def model() -> nn.Module:
    torch.manual_seed(0)
    return Tied()


def tokens(step: int, rank: int) -> Tensor:
    generator = torch.Generator().manual_seed(100 * step + rank)
    return torch.randint(16, (8, 5), generator=generator)


def step_on(module: nn.Module, optimizer: torch.optim.Optimizer, batch: Tensor) -> float:
    optimizer.zero_grad()
    scores = module(batch)
    loss = functional.cross_entropy(scores[:, :-1].reshape(-1, 16), batch[:, 1:].reshape(-1))
    loss.backward()
    optimizer.step()
    return loss.item()


def adam(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.AdamW(module.parameters(), 1e-2)


def weights(module: nn.Module) -> dict[str, Tensor]:
    return {name: value.detach().clone() for name, value in module.state_dict().items()}


def refused(call: Callable[[], Any]) -> str:
    """The message of the error that the call raises."""
    try:
        call()
    except PaifuserError as error:
        return str(error)
    return "nothing was raised"


def trained(name: str) -> dict[str, Any]:
    """The loop of a user, its model prepared; the optimizer is found at its first step."""
    strategy = DataParallel(**STRATEGIES[name])
    module = strategy.prepare(model())
    optimizer = adam(module)
    for step in range(STEPS):
        step_on(module, optimizer, tokens(step, strategy.group.rank))
    whole = strategy.finish()
    return {"weights": weights(whole), "report": strategy.report(), "class": type(whole).__name__}


def reference(world: int, every: int = 1) -> dict[str, Tensor]:
    """One process: gradients averaged over the ranks' batches, or weights every so many steps."""
    if every == 1:
        module = model()
        optimizer = adam(module)
        for step in range(STEPS):
            step_on(module, optimizer, torch.cat([tokens(step, rank) for rank in range(world)]))
        return weights(module)
    modules = [model() for _ in range(world)]
    optimizers = [adam(module) for module in modules]
    for step in range(STEPS):
        for rank, (module, optimizer) in enumerate(zip(modules, optimizers, strict=True)):
            step_on(module, optimizer, tokens(step, rank))
        if step + 1 in (1, 2, 4, STEPS):
            average([[*module.parameters()] for module in modules])
    return weights(modules[0])


def one_step(name: str) -> dict[str, Tensor]:
    """A step of plain gradient descent, whose length is that of the gradient."""
    strategy = DataParallel(**STRATEGIES[name])
    module = strategy.prepare(model())
    step_on(module, descent(module), tokens(0, strategy.group.rank))
    return weights(strategy.finish())


def descent(module: nn.Module) -> torch.optim.Optimizer:
    return torch.optim.SGD(module.parameters(), 1.0)


def lost_in_int8(times: int = 20) -> float:
    """How far the sum of compressed means is from that of the means, in steps of int8."""
    group = join()
    compressed = CompressedMean(Exchange(group, Traffic()), 300, torch.device("cpu"))
    values = torch.stack(
        [torch.randn(300, generator=torch.Generator().manual_seed(rank)) for rank in range(2)]
    )
    total = sum(compressed(values[group.rank].clone()) for _ in range(times))
    return ((total - times * values.mean(0)).abs().max() / (values.abs().max() / LEVELS)).item()


def bad_gradient(name: str) -> dict[str, Any]:
    """Rank 1 has a NaN in the gradient of its fourth step."""
    strategy = DataParallel(**STRATEGIES[name])
    module = strategy.prepare(model())
    inner = getattr(module, "module", module)
    optimizer = adam(module)
    for step in range(3):
        step_on(module, optimizer, tokens(step, strategy.group.rank))
    if strategy.group.rank == 1:
        linear = inner.blocks[1][3]
        linear.register_forward_hook(lambda *args: args[-1] * float("nan"))
    message = refused(lambda: step_on(module, optimizer, tokens(3, strategy.group.rank)))
    is_finite = all(
        bool(getattr(weight, "to_local", lambda kept=weight: kept)().isfinite().all())
        for weight in inner.parameters()
    )
    strategy._handles = [handle.remove() for handle in strategy._handles][:0]
    return {"message": message, "is_finite": is_finite}


def disagreeing() -> dict[str, str]:
    """What each rank is told where the ranks are not alike."""
    rank = join().rank
    examples = TensorDataset(torch.arange(10 + rank))
    layers = [nn.Linear(2, 2 + index) for index in range(2)]
    strategy = DataParallel()
    message = refused(lambda: strategy.prepare(layers[rank]))
    assert strategy.prepare(layers[0]) is layers[0]  # nothing is half prepared
    strategy.finish()

    def loader(data: Any, batch_size: int = 2, *, shared: bool = False) -> str:
        batches = DataLoader(data, batch_size=batch_size)
        strategy = DataParallel(shared_memory=shared)
        return refused(lambda: strategy.prepare(nn.Linear(2, 2), None, batches))

    return {
        "model": message,
        "data": loader(examples),
        "shared data": loader(examples, shared=True),
        "batch": loader(TensorDataset(torch.arange(10)), 2 + rank),
        "strategy": refused(lambda: DataParallel(2 + rank).prepare(nn.Linear(2, 2))),
    }


def optimizer_of_before() -> str:
    """An optimizer that was made before the weights were divided."""
    module = model()
    optimizer = adam(module)
    strategy = DataParallel(shard="full")
    strategy.prepare(module)
    message = refused(optimizer.step)
    strategy.finish()
    return message


def batch_norm() -> dict[str, Any]:
    """The statistics that each rank begins and ends with, and the mean of those they had."""
    results = {}
    for name in ("ddp", "int8", "full"):
        torch.manual_seed(0)
        module = nn.Sequential(nn.Linear(4, 4), nn.BatchNorm1d(4), nn.Linear(4, 16))
        module[1].running_mean.fill_(join().rank)
        strategy = DataParallel(**STRATEGIES[name])
        wrapped, optimizer = strategy.prepare(module, adam(module))
        start = module[1].running_mean.clone()
        generator = torch.Generator().manual_seed(strategy.group.rank)
        for _ in range(3):
            optimizer.zero_grad()
            wrapped(torch.randn(8, 4, generator=generator)).sum().backward()
            optimizer.step()
        own = [module[1].running_mean.clone() for _ in range(strategy.group.world)]
        dist.all_gather(own, module[1].running_mean.clone())
        final = strategy.finish()[1].running_mean
        results[name] = (start, final, torch.stack(own).mean(0))
    return results


def shared_batches() -> dict[str, Any]:
    """What a rank sees of a data set that is held once, in two epochs."""
    values = torch.arange(11).float()
    results: dict[str, Any] = {}
    for shuffle in (False, True):
        loader = DataLoader(TensorDataset(values, values * 2), batch_size=2, shuffle=shuffle)
        strategy = DataParallel(shared_memory=True)
        _, divided = strategy.prepare(nn.Linear(1, 1), None, loader)
        seen = [[batch[0].tolist() for batch in divided] for _ in range(2)]
        report = strategy.report()
        results["shuffled" if shuffle else "in order"] = (
            seen, report.mapped_bytes, report.copied_bytes,
        )  # fmt: skip
        strategy.finish()
    uneven = [(torch.zeros(2),), (torch.zeros(3),)]
    loader = DataLoader(uneven, batch_size=1)  # type: ignore[arg-type]
    results["uneven"] = refused(
        lambda: DataParallel(shared_memory=True).prepare(nn.Linear(1, 1), None, loader)
    )
    return results


def uneven_steps() -> str:
    """Rank 1 has a batch less than rank 0, and no loader was prepared."""
    strategy = DataParallel(sync_frequency=4)
    module = strategy.prepare(model())
    optimizer = adam(module)
    for step in range(6 - strategy.group.rank):
        step_on(module, optimizer, tokens(step, strategy.group.rank))
    return refused(strategy.finish)


def on_four(folder: str) -> list[EqualRow]:
    """The checks of one of four ranks: strategies of `benchmarks parallel --equal`."""
    cases = [
        ("cnn", "DDP"),
        ("cnn", "local 8"),
        ("vit", "tensor parallel"),
        ("vit", "ZeRO"),
        ("gpt-like", "FSDP2"),
        ("gpt-like", "local 8, int8 differences"),
        ("gpt-like", "pipeline, 1f1b"),
    ]
    return [compared(name, strategy, 4) for name, strategy in cases]


def everything(folder: str) -> dict[str, Any]:
    """All checks of one of two ranks."""
    from benchmarks import parallel_kill_rank
    from benchmarks.parallel_kills import STEPS_A_KILL
    from tests.support.parallel_checkpoints import checkpoints

    alone = Path(folder, "alone")
    alone.mkdir(exist_ok=True)
    parallel_kill_rank.main(alone, 2 * STEPS_A_KILL, 8)
    return {
        "trained": {name: trained(name) for name in STRATEGIES},
        "one step": {name: one_step(name) for name in EVERY_STEP},
        "lost in int8": lost_in_int8(),
        "bad": {name: bad_gradient(name) for name in ("ddp", "bf16", "int8", "zero", "full")},
        "disagreeing": disagreeing(),
        "before": optimizer_of_before(),
        "uneven steps": uneven_steps(),
        "equal": [
            compared(name, strategy, 4)
            for name, strategy in (("cnn", "DDP"), ("cnn", "FSDP2"), ("vit", "local 8"))
        ],
        "plain loop": [plain_loop(every) for every in (1, 2)],
        "batch norm": batch_norm(),
        "shared": shared_batches(),
        "checkpoints": checkpoints(folder),
    }


def plain_loop(every: int) -> dict[str, Any]:
    """A loop as it is, with `lab.enable_data_parallelism()` before it."""
    import paifuser_lab as lab

    rank = join().rank
    torch.manual_seed(rank)
    module = Tied()
    optimizer = adam(module)
    lab.enable_data_parallelism(every)
    for step in range(STEPS):
        step_on(module, optimizer, tokens(step, rank))
    status = str(lab.status())
    lab.disable()
    return {"weights": weights(module), "status": status}
