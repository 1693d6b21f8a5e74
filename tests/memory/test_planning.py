"""The memory plan: its arena against the lower bound and against what torch's allocator held."""

from __future__ import annotations

import pytest
import torch
from pydantic import ValidationError
from torch import nn

import paifuser_lab as lab
from paifuser_lab.measure import peak_bytes
from paifuser_lab.memory.planning import plan_memory
from paifuser_lab.records import MemoryPlan, PackedBuffer
from paifuser_lab.workload import running

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.mark.parametrize("name", ["resnet18-tiny", "swin-t-tiny"])
def test_the_plan_of_a_zoo_model_keeps_its_order(name):
    work = lab.load(name)
    plan = plan_memory(work)
    assert 0 < plan.bound_bytes <= plan.packed_bytes <= plan.best_fit_bytes
    # the model refers to no less than what is still read, and the allocator gave it all of that
    assert plan.bound_bytes <= plan.referenced_bytes <= plan.held_bytes
    inputs = work.inputs.clone()
    with running(work.model):
        assert plan.held_bytes == peak_bytes(lambda: inputs(work.model), work.device)


def test_a_model_of_a_few_operators_is_counted_by_hand():
    class Few(nn.Module):
        def forward(self, x: torch.Tensor) -> torch.Tensor:
            return torch.cat([x + 1, x + 2]) * 3

    plan = plan_memory(lab.Workload(Few(), torch.ones(1000), name="few"))
    assert [(one.operator, one.size_bytes, one.begin, one.end) for one in plan.buffers] == [
        ("add", 4000, 0, 2),
        ("add", 4000, 1, 2),
        ("cat", 8000, 2, 3),
        ("mul", 8000, 3, 3),
    ]
    assert plan.alive_bytes == (4000, 8000, 16000, 16000)
    assert (plan.bound_bytes, plan.packed_bytes, plan.fullest) == (16000, 16000, 2)
    assert plan.is_optimal and plan.referenced_bytes == 16000
    # the numbers that operators wrap as tensors take a few bytes, too
    assert 16000 <= plan.held_bytes < 16100
    assert [one.size_bytes for one in plan.at_fullest] == [8000, 4000, 4000]


def packed(**changes: int) -> PackedBuffer:
    values = {"size_bytes": 4, "begin": 0, "end": 1, "offset_bytes": 0} | changes
    return PackedBuffer(layer="a", operator="add", **values)


def plan_of(*buffers: PackedBuffer) -> MemoryPlan:
    return MemoryPlan(
        workload="net",
        machine="a machine",
        device="cpu",
        operators=3,
        buffers=buffers,
        method="best fit by size",
        best_fit_bytes=8,
        is_optimal=False,
        referenced_bytes=8,
        held_bytes=8,
    )


def test_a_plan_whose_live_buffers_overlap_is_refused():
    plan_of(packed(), packed(offset_bytes=4), packed(begin=2, end=2))
    with pytest.raises(ValidationError, match="share memory while both are alive"):
        plan_of(packed(), packed(begin=1, offset_bytes=3))
    with pytest.raises(ValidationError, match="operator 0 to 3, of 3"):
        plan_of(packed(end=3))
    with pytest.raises(ValidationError, match="operator 2 to 1"):
        plan_of(packed(begin=2))


def test_a_model_without_buffers_has_an_empty_plan():
    plan = plan_memory(lab.Workload(nn.Identity(), torch.ones(2)))
    assert (plan.packed_bytes, plan.bound_bytes, plan.at_fullest) == (0, 0, ())
    assert "no buffer" in plan.sentence and lab.figure(plan).png()


def test_a_variant_s_plan_is_of_the_changed_model():
    work = lab.load("mobilenetv2-tiny")
    folded = lab.apply(work, lab.Recipe(["fold"]))
    assert len(plan_memory(folded).buffers) < len(plan_memory(work).buffers)
