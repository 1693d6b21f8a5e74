"""Residual sums in place: only over an operand that nobody else reads, and the same to the bit."""

from __future__ import annotations

import copy
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.fusion.blocks import FusedBlock, sums_in
from paifuser_lab.memory.lifetimes import record
from paifuser_lab.memory.reuse import plan_reuse, run_in_place
from paifuser_lab.model.weights import answer_hash
from paifuser_lab.workload import running
from tests.support.models import enliven

pytestmark = pytest.mark.usefixtures("one_thread")


class Residual(nn.Module):
    """A linear layer and sums; its forward is drawn by `kind`."""

    def __init__(self, kind: str) -> None:
        super().__init__()
        self.kind, self.line, self.other = kind, nn.Linear(6, 6), nn.Linear(6, 6)
        self.row, self.kept = nn.Linear(6, 1), list[Tensor]()
        self.double = nn.Linear(6, 6).double()

    def forward(self, x: Tensor) -> Any:
        y = self.line(x)
        match self.kind:
            case "x + f(x)":
                return x + y
            case "f(x) + x":
                return y + x
            case "two that are free":
                return torch.add(y, self.other(x))
            case "a method":
                return y.add(x)
            case "read later":
                return (x + y) * y
            case "returned":
                return x + y, y
            case "a view is read later":
                half = y[:, :3]
                return (x + y).sum() + half.sum()
            case "kept in a list":
                self.kept.append(y)
                return x + y
            case "itself":
                return y + y
            case "its own view":
                return y.view_as(y) + y
            case "only inputs":
                return (x + x.t().t()) * 2 + y.sum()
            case "a choice by size":
                return x + y if x.shape[0] > 4 else y + y.abs()
            case "scaled":
                return torch.add(x, y, alpha=2)
            case "beside a sum of sizes":
                return (x + y) / (x.size(0) + y.size(0))
        raise AssertionError(self.kind)


FREE = {"x + f(x)": 1, "f(x) + x": 0, "two that are free": 0, "a method": 0}
HELD = [
    "read later",
    "returned",
    "a view is read later",
    "kept in a list",
    "itself",
    "its own view",
    "a choice by size",
    "scaled",
    "beside a sum of sizes",
]


def planned(model: nn.Module, *inputs: Tensor) -> Any:
    with running(model):
        return plan_reuse(model, record(model, lambda: model(*inputs)))


def check(model: nn.Module, changed: nn.Module, *inputs: Tensor) -> None:
    kept = copy.deepcopy(inputs)
    with torch.no_grad():
        assert answer_hash(changed(*inputs)) == answer_hash(model(*inputs))
    assert all(torch.equal(one, other) for one, other in zip(inputs, kept, strict=True))


@pytest.mark.parametrize("kind", FREE)
def test_a_sum_writes_over_the_operand_that_nobody_else_reads(kind):
    model = enliven(Residual(kind)).eval()
    changed = copy.deepcopy(model)
    plan = planned(changed, torch.randn(4, 6))
    (block,) = plan.sums.blocks.values()
    assert [operand for _, operand in block.sums] == [FREE[kind]] and plan.sums.total == 1
    run_in_place(changed, (), plan.sums.blocks)
    seen: list[int] = []
    for batch in (1, 4, 5):
        check(model, changed, torch.randn(batch, 6))
    changed.line.register_forward_hook(lambda module, args, output: seen.append(output.data_ptr()))
    with torch.no_grad():
        result = changed(torch.randn(4, 6))
    assert result.data_ptr() == seen[0], "the result lies where the operand was"


@pytest.mark.parametrize("kind", HELD)
def test_a_sum_whose_operands_others_may_read_makes_new_memory(kind):
    model = enliven(Residual(kind)).eval()
    changed = copy.deepcopy(model)
    plan = planned(changed, torch.randn(4, 6))
    run_in_place(changed, plan.layers, plan.sums.blocks)
    assert not sums_in(changed)
    for batch in (1, 4, 5):
        check(model, changed, torch.randn(batch, 6))


def test_operands_of_other_shapes_and_layouts_make_new_memory():
    class Broadcast(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.line = nn.Linear(6, 6)

        def forward(self, x: Tensor, y: Tensor) -> Tensor:
            return self.line(x) + y

    model = Broadcast().eval()
    changed = copy.deepcopy(model)
    run_in_place(changed, (), planned(changed, torch.randn(4, 6), torch.randn(4, 6)).sums.blocks)
    for other in (
        torch.randn(4, 6),
        torch.randn(6),
        torch.randn(3, 4, 6),
        torch.randn(6, 4).t(),
        torch.randn(4, 6).double(),
    ):
        check(model, changed, torch.randn(4, 6), other)
        ours, theirs = changed(torch.ones(4, 6), other), model(torch.ones(4, 6), other)
        assert ours.dtype == theirs.dtype and ours.stride() == theirs.stride()


def test_the_peak_falls_by_the_sum():
    model = nn.Sequential(nn.Linear(250, 250), Wide(), nn.Linear(250, 1))
    work = Workload(enliven(model), torch.randn(1000, 250), name="wide")
    variant = lab.apply(work, Recipe(["reuse"]))
    # x, f(x) and the sum of a megabyte each before; x and f(x) in place
    assert variant.notes[0].startswith("1 of 1 sum in place; buffers at once: 3 MB → 2 MB")


class Wide(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = nn.Linear(250, 250)

    def forward(self, x: Tensor) -> Tensor:
        return x + self.line(x)


def test_a_zoo_model_with_sums_in_place_is_the_same_to_the_bit():
    work = lab.load("vit-s-tiny", batch=2)
    variant, plain = lab.apply(work, REUSE), lab.apply(work, Recipe([]))
    with running(variant.model), running(plain.model):
        for batch in (2, 3):
            inputs = lab.load("vit-s-tiny", batch=batch).inputs
            ours, theirs = (inputs.clone()(one) for one in (variant.model, plain.model))
            assert answer_hash(ours) == answer_hash(theirs)
    assert sums_in(variant.module)


def test_sums_stay_in_place_when_a_model_is_fused_afterwards():
    work = lab.load("vit-s-tiny")
    before = {name: one.sums for name, one in sums_in(lab.apply(work, REUSE).module).items()}
    fused = lab.apply(work, Recipe(["reuse", {"fuse": {"off": ["*"]}}]))
    assert {name: one.sums for name, one in sums_in(fused.module).items()} == before and before
    blocks = [one for one in fused.module.modules() if isinstance(one, FusedBlock)]
    assert len(blocks) == len(before)


REUSE = Recipe(["reuse"])


def test_hooks_and_compiled_blocks_keep_their_sums():
    model = nn.Sequential(nn.Linear(250, 250), Wide()).eval()
    model[1].register_forward_hook(lambda module, args, output: None)
    plan = planned(model, torch.randn(4, 250))
    assert not plan.sums.blocks and plan.sums.kept == {"1.add": "the block runs it in another way"}
