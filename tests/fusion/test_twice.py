"""Several `fuse` steps in one recipe: they act as one, and what is loaded is what was saved."""

from __future__ import annotations

from collections import OrderedDict
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.fusion import fuse_again
from paifuser_lab.fusion.blocks import FusedBlock
from paifuser_lab.fusion.layers import FusedLayer
from paifuser_lab.model.weights import answer_hash
from paifuser_lab.variant import Variant
from tests.support.fusing_models import Block, patterns
from tests.support.models import enliven
from tests.support.processes import python

pytestmark = pytest.mark.usefixtures("one_thread", "always_quicker")

IN_ANOTHER_PROCESS = """
import sys, torch
torch.set_num_threads(1)
import paifuser_lab as lab
from paifuser_lab.model.weights import answer_hash
variant = lab.Variant.load(sys.argv[1])
with torch.no_grad():
    print(answer_hash(variant.work.inputs.clone()(variant.model)))
"""
ALL_ON, ALL_OFF = {"fuse": {"on": ["*"]}}, {"fuse": {"off": ["*"]}}
FIRST, SECOND = {"fuse": {"layers": ["layer1.*"]}}, {"fuse": {"layers": ["layer2.*"]}}
RECIPES = {
    "on, then off": [ALL_ON, ALL_OFF],
    "one part, then another": [FIRST, SECOND],
    "off, then on": [ALL_OFF, ALL_ON],
    "a part, then all but some of it": [FIRST, {"fuse": {"off": ["layer1.0.*"]}}],
}


def small() -> Workload:
    """Four blocks in two parts."""
    torch.manual_seed(0)
    parts = {
        name: nn.Sequential(Block("plain", 4), Block("residual", 4))
        for name in ("layer1", "layer2")
    }
    return Workload(enliven(nn.Sequential(OrderedDict(parts))), torch.randn(1, 4, 5, 5))


def answered(variant: Variant) -> Tensor:
    with torch.no_grad():
        output: Tensor = variant.work.inputs.clone()(variant.model)
    return output


def run_as_one(module: nn.Module) -> set[str]:
    """The layers and blocks that are not as torch has them."""
    return {
        name
        for name, module in module.named_modules()
        if isinstance(module, FusedLayer | FusedBlock)
    }


@pytest.mark.parametrize("steps", RECIPES.values(), ids=RECIPES)
def test_a_variant_of_two_fuse_steps_is_loaded_as_saved(steps: list[Any], tmp_path: Path) -> None:
    work = small()
    variant = lab.apply(work, Recipe(steps))
    loaded = lab.Variant.load(variant.save(tmp_path / "kept"), work)
    assert run_as_one(loaded.module) == run_as_one(variant.module)
    assert torch.equal(answered(loaded), answered(variant)) and loaded.fusions == variant.fusions


def test_another_process_loads_a_variant_of_two_fuse_steps_exactly(tmp_path: Path) -> None:
    variant = lab.apply(lab.load("resnet18-tiny"), Recipe([FIRST, SECOND]))
    folder = variant.save(tmp_path / "kept")
    output = python("-c", IN_ANOTHER_PROCESS, folder)
    assert output.stdout.split() == [answer_hash(answered(variant))]


def test_later_switches_override_earlier_ones_and_change_nothing_else() -> None:
    work = small()
    assert patterns(lab.apply(work, Recipe([ALL_ON, ALL_OFF]))) == {}
    assert run_as_one(lab.apply(work, Recipe([ALL_ON, ALL_OFF])).module) == set()
    every = set(patterns(lab.apply(work, Recipe(["fuse"]))))
    assert set(patterns(lab.apply(work, Recipe([ALL_OFF, ALL_ON])))) == every
    part = {site for site in every if site.startswith("layer1.")}
    some = patterns(
        lab.apply(
            work, Recipe([FIRST, {"fuse": {"layers": ["layer1.1.*"], "off": ["layer1.0.*"]}}])
        )
    )
    assert set(some) == {site for site in part if not site.startswith("layer1.0.")} != set()
    kept_off = patterns(
        lab.apply(
            work, Recipe([{"fuse": {"off": ["layer1.0.*"]}}, {"fuse": {"on": ["layer2.0.*"]}}])
        )
    )
    assert set(kept_off) == {site for site in every if not site.startswith("layer1.0.")}


ONE_ON, PART_OFF = {"fuse": {"on": ["layer1.0.*"]}}, {"fuse": {"off": ["layer1.*"]}}
PART_ON = {"fuse": {"layers": ["layer*"], "on": ["layer1.*"]}}


@pytest.mark.parametrize(
    ("older", "newer"),
    [
        (ALL_ON, ALL_OFF),
        (ALL_ON, SECOND),
        (ALL_OFF, ONE_ON),
        (FIRST, ALL_ON),
        (FIRST, SECOND),
        (FIRST, {"fuse": {}}),
        (PART_OFF, ONE_ON),
        (PART_OFF, {"fuse": {}}),
        (PART_ON, ALL_OFF),
        (PART_ON, SECOND),
    ],
    ids=str,
)
def test_a_joined_step_does_what_both_steps_do_in_sequence(older: Any, newer: Any) -> None:
    work, first = small(), Recipe([older])
    after_each_other, joined = (
        lab.apply(work, first + newer),
        lab.apply(work, first.with_step(newer)),
    )
    assert set(patterns(joined)) == set(patterns(after_each_other))
    assert run_as_one(joined.module) == run_as_one(after_each_other.module)


def test_rebuilding_unfuses_what_an_earlier_step_fused() -> None:
    work = small()
    first, second = lab.apply(work, Recipe([ALL_ON])), lab.apply(work, Recipe([ALL_ON, ALL_OFF]))
    fuse_again(first.module, second.remembered[1])
    assert run_as_one(first.module) == set()


def test_a_step_joins_the_last_of_several_and_no_earlier_one() -> None:
    recipe = Recipe([{"fuse": {"off": ["layer1.*"]}}]).with_step({"fuse": {"on": ["layer1.0.*"]}})
    assert len(recipe) == 2, "patterns cannot say that as one"
    further = recipe.with_step({"fuse": {"off": ["layer1.0.*"]}})
    assert further.steps[0] == recipe.steps[0] and further.steps[1].options == {
        "off": ["layer1.0.*"]
    }
    assert set(patterns(lab.apply(small(), recipe))) == {
        "layer1.0.conv",
        "layer2.0.conv",
        "layer2.1.conv",
    }


def test_the_workload_of_a_variant_is_fused_further() -> None:
    work = small()
    once = lab.apply(work, Recipe([FIRST]))
    again = lab.apply(once.workload, Recipe([SECOND]))
    assert {site.split(".")[0] for site in patterns(again)} == {"layer1", "layer2"}
    with torch.no_grad():
        assert torch.allclose(answered(again), work.output(), rtol=1e-4, atol=1e-5)
