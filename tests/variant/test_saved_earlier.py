"""Folders that an earlier layout of the package saved still load, to the bit."""

from __future__ import annotations

from pathlib import Path

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab.model.weights import weights_hash

pytestmark = pytest.mark.usefixtures("one_thread")
SAVED = Path(__file__).parent.parent / "support" / "recorded" / "saved"
# What each held when it was saved: the weights' hash, and the steps of its recipe.
HELD = {
    "resnet18-tiny": (
        "4bb0db33171430344c98b5e6b8c037a54fd853e344d374226938bcf474e2cdd2",
        ["fold", "prune", "precision", "fuse"],
    ),
    "vit-s-tiny": (
        "02fb12aaa462bff6239f244b53fe43a6fab753f606f016f023449836bc169558",
        ["prune", "precision"],
    ),
    "mobilenetv2-tiny": (
        "a8f7040b97ac66c142dd5d04325d3cdd2c283ed9bacc3b58c6d226e7ff4afcbe",
        ["fold", "shorten", "precision"],
    ),
}


@pytest.mark.parametrize("name", HELD)
def test_a_folder_saved_before_the_package_was_rearranged_loads_to_the_bit(name, processor):
    processor.counts_as_with_vnni()  # as where they were saved; on another they are rounded again
    held, kinds = HELD[name]
    variant = lab.Variant.load(SAVED / name)
    assert weights_hash(variant.module) == held
    assert [step.kind for step in variant.recipe] == kinds
    work = lab.load(SAVED / name)
    with torch.inference_mode():
        answer, again = (model(*work.inputs.args) for model in (work.model, variant.model))
    assert torch.equal(answer, again) and answer.isfinite().all()
