"""What processes of `parallel.run` compute for the tests, each compared with one process."""

from __future__ import annotations

import time
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
import torch.distributed as dist
import torch.nn.functional as F
from torch import nn

from benchmarks.parallel_equal import descent
from benchmarks.parallel_models import MODELS
from paifuser_lab.parallel import pipeline, tensor_parallel
from paifuser_lab.parallel.simulated_link import simulated_link
from paifuser_lab.parallel.tensor import ColumnParallelLinear, RowParallelLinear
from paifuser_lab.records import Link
from paifuser_lab.workload import Workload
from tests.support.parallel_loops import refused


def trained_alone(work: Workload, steps: int, microbatches: int = 1, every: int = 1) -> list[float]:
    """Train the model in this process, with so many batches in each step; the losses."""
    model, losses = work.model.train(), []
    optimizer = descent(model.parameters())
    for step in range(steps):
        inputs, target = work.train[step % len(work.train)]
        total = 0.0
        for x, y in zip(inputs.chunk(microbatches), target.chunk(microbatches), strict=True):
            loss = work.loss(model(x), y) / microbatches
            loss.backward()
            total += loss.item()
        if (step + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(total)
    return losses


def largest_difference(model: nn.Module, other: nn.Module) -> float:
    """Between their weights and buffers, name by name."""
    state, expected = model.state_dict(), other.state_dict()
    assert state.keys() == expected.keys()
    return max((state[name] - expected[name]).abs().max().item() for name in expected)


def piped(name: str, schedule: str, steps: int, every: int = 1, **options: Any) -> dict[str, Any]:
    """Train in a pipeline, and compare with one process that adds the microbatches up."""
    work, alone = MODELS[name](), MODELS[name]()
    expected = trained_alone(alone, steps, microbatches=4, every=every)
    stage = pipeline(work, schedule=schedule, microbatches=4, **options)
    optimizer, losses = descent(stage.parameters()), []
    for step in range(steps):
        losses.append(stage.step(*work.train[step % len(work.train)]))
        if (step + 1) % every == 0:
            optimizer.step()
            optimizer.zero_grad()
    whole = stage.whole_model()
    fresh = MODELS[name]()
    return {
        "difference": largest_difference(whole, alone.model),
        "loss": max(abs(a - b) for a, b in zip(losses, expected, strict=True)),
        "untouched": largest_difference(work.model, fresh.model),
        "shared": len(stage.shared),
        "record": stage.record(),
        "own": sum(weight.numel() for weight in stage.parameters()),
        "all": sum(weight.numel() for weight in alone.model.parameters()),
    }


def clipped(work: Workload, clip: Callable[[float], Any]) -> list[float]:
    """The norm of the next gradient, and what it is once it was shortened to 0.1."""
    inputs, target = work.train[0]
    work.loss(work.model(inputs), target).backward()
    return [float(clip(0.1)) for _ in range(2)]


def divided(name: str, steps: int) -> dict[str, Any]:
    """Train with divided blocks, and compare with one process."""
    work, alone = MODELS[name](), MODELS[name]()
    expected = trained_alone(alone, steps)
    parallel = tensor_parallel(work)
    losses = trained_alone(work, steps)
    whole = parallel.whole_model()
    own = sum(
        getattr(weight, "to_local", lambda weight=weight: weight)().numel()
        for weight in work.model.parameters()
    )
    return {
        "difference": largest_difference(whole, alone.model),
        "loss": max(abs(a - b) for a, b in zip(losses, expected, strict=True)),
        "plan": parallel.plan,
        "own": own,
        "still_divided": sum(
            isinstance(module, ColumnParallelLinear) for module in work.model.modules()
        ),
        "norms": clipped(work, parallel.clip_gradients),
        "norms alone": clipped(
            alone, partial(nn.utils.clip_grad_norm_, list(alone.model.parameters()))
        ),
    }


def single_layers() -> dict[str, Any]:
    """A column and a row layer one after the other, against the linear layers they are made of."""
    torch.manual_seed(0)
    linear, second, x = nn.Linear(12, 8), nn.Linear(8, 6), torch.randn(3, 12)
    column, row = ColumnParallelLinear(linear), RowParallelLinear(second)
    ours, theirs = x.clone().requires_grad_(), x.clone().requires_grad_()
    row(column(ours)).square().sum().backward()
    second(linear(theirs)).square().sum().backward()
    result: dict[str, Any] = {
        "pair": (
            (row(column(x)) - second(linear(x))).abs().max().item(),
            (ours.grad - theirs.grad).abs().max().item(),
            (column.whole().weight - linear.weight).abs().max().item(),
            (row.whole().weight - second.weight).abs().max().item(),
        )
    }
    parts = ColumnParallelLinear(linear, parts=2)
    result["parts"] = (parts.whole().weight - linear.weight).abs().max().item()
    result["own_of_parts"] = (parts(x) - linear(x)[:, own_columns(8, 2)]).abs().max().item()
    return result


def own_columns(width: int, parts: int) -> list[int]:
    """The columns of this process if each part of the width is halved."""
    size = width // parts // 2
    return [
        part * width // parts + dist.get_rank() * size + index
        for part in range(parts)
        for index in range(size)
    ]


def refusals() -> dict[str, str]:
    """The errors of what cannot be done."""
    work = MODELS["gpt-like"]()
    calls = {
        "odd": lambda: ColumnParallelLinear(nn.Linear(4, 7)),
        "odd row": lambda: RowParallelLinear(nn.Linear(7, 4)),
        "microbatches": lambda: pipeline(work, microbatches=5),
        "begins": lambda: pipeline(work, begins="half"),
        "whole": lambda: tensor_parallel(Workload(nn.Linear(4, 4), torch.ones(2, 4))),
    }
    return {name: refused(call) for name, call in calls.items()}


def exchanges() -> dict[str, Any]:
    """For how long known exchanges take a slow link, and when they are over."""
    value, all_values = torch.ones(1000), torch.empty(2000)
    link = Link(latency_us=0, gbit_per_s=1e-3)
    begin = time.perf_counter()
    with simulated_link(link) as slow:
        dist.all_reduce(value)
        dist.all_gather_single(all_values, value)
    seconds = time.perf_counter() - begin
    dist.all_reduce(value)  # no longer delayed
    return {
        "link_s": slow.link_s,
        "expected_s": link.ring_s(4000, 2) + link.ring_s(8000, 2, 1),
        "seconds": seconds,
        "sum": value[0].item(),
    }


def unseeded() -> dict[str, Any]:
    """Models that each process makes with other weights, and then trains or cuts."""
    torch.manual_seed(dist.get_rank())
    block = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 8))
    x = torch.ones(4, 8)
    work = Workload(nn.Sequential(block, nn.Dropout()), x, loss=F.mse_loss, train=[(x, x)])
    parallel = tensor_parallel(work)
    losses = trained_alone(work, 2)
    state = parallel.whole_model().state_dict()
    cut = MODELS["cnn"]()
    for weight in cut.model.parameters():
        weight.data += dist.get_rank()
    stage = pipeline(cut, begins="equal")
    return {
        "losses": losses,
        "weights": {name: value.tolist() for name, value in state.items()},
        "cut": largest_difference(stage.whole_model(), MODELS["cnn"]().model),
    }


def everything(folder: str) -> dict[str, Any]:
    """All checks of one of two ranks."""
    return {
        "layers": single_layers(),
        "divided": {name: divided(name, 5) for name in MODELS},
        "piped": {
            ("cnn", "gpipe"): piped("cnn", "gpipe", 3),
            ("vit", "1f1b"): piped("vit", "1f1b", 5),
            ("gpt-like", "1f1b"): piped("gpt-like", "1f1b", 5),
            ("gpt-like", "gpipe"): piped("gpt-like", "gpipe", 3, begins="equal"),
            ("gpt-like", "two batches a step"): piped(
                "gpt-like", "gpipe", 4, every=2, begins="equal"
            ),
        },
        "refusals": refusals(),
        "exchanges": exchanges(),
        "unseeded": unseeded(),
    }
