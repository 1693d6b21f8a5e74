"""`benchmarks checkpoints` plans within a share of the peak, and its page shows what it reached."""

from __future__ import annotations

import pytest
import torch
from torch import nn

from benchmarks import checkpoints
from benchmarks.measured import Records
from benchmarks.pages import block
from benchmarks.train_models import Trained
from paifuser_lab.planner.training import checkpoints as planning
from paifuser_lab.records import Record
from tests.support.models import Perceptron


def batch(step: int):
    generator = torch.Generator().manual_seed(step)
    return torch.randn(32, 16, generator=generator), torch.arange(32) % 16


@pytest.fixture(scope="module")
def measured():
    stack = Trained(lambda: nn.Sequential(*(Perceptron(16) for _ in range(4))), batch)
    one = Trained(lambda: Perceptron(16), batch)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(checkpoints, "MODELS", {"stack": stack, "one": one})
        patch.setattr(planning, "RACE_S", 0.05)
        yield checkpoints.bench(("stack", "one"), share=0.9)


def test_a_plan_is_measured_for_each_model_and_a_model_without_blocks_is_a_failure(
    measured, tmp_path
):
    (plan,) = measured.plans
    assert plan.workload == "stack" and 0 < len(plan.layers) <= 4
    assert plan.measured_bytes < plan.measured_plain_bytes
    assert plan.limit_bytes == int(0.9 * plan.plain_bytes)
    assert plan.longer > 0 and plan.longer_interval[0] <= plan.longer <= plan.longer_interval[1]
    assert list(measured.failures) == ["one"] and "no repeated blocks" in measured.summary
    assert measured.table()[0]["blocks"] == f"{len(plan.layers)} of 4"
    assert "measured" in plan.title and "× as long" in plan.title
    assert Record.load(measured.save(tmp_path / "checkpoints.json")) == measured


def test_the_page_shows_shares_of_peak_and_time(measured, tmp_path):
    (plan,) = measured.plans
    known = plan.model_copy(
        update={
            "measured_plain_bytes": 200,
            "measured_bytes": 110,
            "longer": 1.25,
            "longer_interval": (1.2, 1.3),
        }
    )
    measured.model_copy(update={"plans": (known,)}).save(tmp_path / "checkpoints.json")
    page = block("checkpoints", Records(tmp_path))
    assert "| stack |" in page and "| −45 % |" in page and "1.25 × (1.20–1.30)" in page
