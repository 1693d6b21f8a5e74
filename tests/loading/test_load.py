"""Workloads by name: of the zoo, from functions, files of weights and transformers' configs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab.errors import FileError, MissingExtraError, UnknownModelError, WorkloadError
from paifuser_lab.model.weights import save_weights, weights_hash

MODULE = """
import torch
from torch import nn
import paifuser_lab as lab
number = 3
def pair(width=4):
    import {name}_helper
    return nn.Linear(width, 2), torch.ones(1, width)
def work():
    return lab.Workload(nn.Linear(3, 2), torch.ones(1, 3), name="mine")
def model():
    return nn.Linear(3, 2)
def batches():
    return [(torch.ones(2, 3), torch.zeros(2))], [(torch.rand(2, 3), torch.zeros(2))]
"""


@pytest.fixture
def here(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A module in the current folder, which is not on the path, and a helper that it imports when
    it is called.
    """
    name = f"made_up_{os.getpid()}"
    (tmp_path / f"{name}.py").write_text(MODULE.format(name=name))
    (tmp_path / f"{name}_helper.py").write_text("")
    (tmp_path / "broken_module.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return name


def test_an_unknown_model_names_the_nearest() -> None:
    with pytest.raises(UnknownModelError, match="resnet18"):
        lab.load("resnet81")


def test_a_function_returns_a_workload_or_a_pair(here: str) -> None:
    path = list(sys.path)
    work = lab.load(f"{here}:pair", width=6)
    assert (work.name, work.inputs.tensors[0].shape) == ("pair", (1, 6))
    assert lab.load(f"{here}:work").name == "mine" and sys.path == path


def test_data_can_be_another_functions(here: str) -> None:
    work = lab.load(f"{here}:work", data=f"{here}:batches", seed=3)
    again = lab.load(f"{here}:work", data=f"{here}:batches", seed=3)
    assert work.train is not None and work.test is not None and again.test is not None
    assert len(work.train) == 1 and torch.equal(work.test[0][0], again.test[0][0])
    with pytest.raises(WorkloadError, match="returned Linear; as data, return a pair"):
        lab.load(f"{here}:work", data=f"{here}:model")


def test_equal_seeds_give_equal_weights_and_preserve_the_random_state(here: str) -> None:
    state = torch.random.get_rng_state()
    first, same, other = (
        weights_hash(lab.load(f"{here}:pair", seed=seed).model) for seed in (0, 0, 1)
    )
    assert first == same != other and torch.equal(torch.random.get_rng_state(), state)


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("{here}:absent", "cannot be imported .*absent"),
        ("no_such_module_here:f", "cannot be imported .*no_such_module_here"),
        ("broken_module:f", "cannot be imported .*SyntaxError"),
        ("{here}:number", "is a int, not a function"),
        (":f", "cannot be imported"),
        ("{here}:model", "returned Linear; return a Workload, or a pair"),
    ],
)
def test_a_name_that_gives_no_workload_is_reported(function: str, message: str, here: str) -> None:
    path = list(sys.path)
    with pytest.raises(WorkloadError, match=message):
        lab.load(function.format(here=here))
    assert sys.path == path


def test_weights_are_loaded_by_name(tmp_path: Path) -> None:
    path = save_weights(lab.load("resnet18-tiny", seed=7).model, tmp_path / "w.safetensors")
    work = lab.load("resnet18-tiny", weights=path)
    assert weights_hash(work.model) == weights_hash(lab.load("resnet18-tiny", seed=7).model)
    with pytest.raises(FileError, match="saved from another model"):
        lab.load("bert-base-tiny", weights=path)


def transformers_or_skip() -> None:
    if "transformers" not in os.environ.get("PAIFUSER_REQUIRE", ""):
        pytest.importorskip("transformers")


SMALL = {
    "hidden_size": 16,
    "num_hidden_layers": 1,
    "num_attention_heads": 2,
    "intermediate_size": 16,
}


@pytest.mark.filterwarnings("default")
@pytest.mark.parametrize(
    ("name", "options", "key", "shape"),
    [
        ("hf:bert", SMALL | {"vocab_size": 120}, "input_ids", (2, 128)),
        ("hf:vit", SMALL | {"image_size": 32, "patch_size": 16}, "pixel_values", (2, 3, 32, 32)),
    ],
)
def test_a_transformers_config_by_name_is_a_workload(
    name: str, options: dict[str, Any], key: str, shape: tuple[int, ...]
) -> None:
    transformers_or_skip()
    work = lab.load(name, batch=2, **options)
    assert work.inputs.kwargs[key].shape == shape
    assert torch.isfinite(work.output().last_hidden_state).all()
    assert weights_hash(work.model) == weights_hash(lab.load(name, batch=2, **options).model)


@pytest.mark.filterwarnings("default")
def test_an_unknown_transformers_config_is_reported() -> None:
    transformers_or_skip()
    with pytest.raises(UnknownModelError, match="transformers cannot make 'hf:nonsense'"):
        lab.load("hf:nonsense")


def test_transformers_that_are_not_installed_name_the_extra(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setitem(sys.modules, "transformers", None)
    with pytest.raises(
        MissingExtraError, match=r"hf:bert needs transformers.*pip install 'paifuser-lab\[hf\]'"
    ):
        lab.load("hf:bert")
