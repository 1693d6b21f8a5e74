"""Workloads by name: of the zoo, from functions, files of weights and transformers' configs."""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import Any

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab.cli.loading import named
from paifuser_lab.errors import FileError, MissingExtraError, UnknownModelError, WorkloadError
from paifuser_lab.model.weights import save_weights, weights_hash
from paifuser_lab.variant.python_names import SOURCE

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
def text():
    return "text"
ready = nn.Linear(5, 2)
class Two(nn.Module):
    def forward(self, a, b):
        return a + b
class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(3, 2)
    def forward(self, tokens):
        return self.table(tokens)
def batches():
    return [(torch.ones(2, 3), torch.zeros(2))], [(torch.rand(2, 3), torch.zeros(2))]
def iterators():
    return tuple(map(iter, batches()))
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
    (tmp_path / "json.py").write_text(MODULE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "modules", dict(sys.modules))
    return name


def test_the_code_that_loads_a_workload_has_what_it_was_loaded_with() -> None:
    work = lab.load("resnet18-tiny", batch=2, seed=3)
    assert work.loading_code == "work = lab.load('resnet18-tiny', batch=2, seed=3)\n"
    assert lab.load("resnet18-tiny").loading_code == "work = lab.load('resnet18-tiny')\n"
    assert lab.Workload(work.model, work.inputs).loading_code == ""


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
    with pytest.raises(WorkloadError, match="the train data can be iterated only once"):
        lab.load(f"{here}:work", data=f"{here}:iterators")


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
        ("{here}:batches", "A workload needs a torch.nn.Module, not a list"),
        ("{here}:text", "returned str; return a Workload, a pair of a model and its inputs, or a"),
        (
            "{here}.py:absent",
            r"no attribute 'absent'.*; it defines pair, work, model, text",
        ),
        ("nowhere/{here}.py:pair", "There is no file 'nowhere/made_up.*"),
        ("json.py:pair", "would be the module 'json', and another one is called that; rename"),
        ("broken_module.py:f", r"SyntaxError.*; correct the file"),
        ("{here}.py:Two", r"add their shapes, .*:Two@1x3x32x32 .*--input 1x3x32x32"),
        ("{here}.py:Two@2x8xa", "'2x8xa' is no shape of an input; write 1x3x32x32"),
        ("{here}.py:work@4x3", "returns a Workload, which has its inputs; leave @4x3 "),
        ("{here}.py:Two@0x3", "'0x3' is no shape"),
        ("{here}.py:Two@99999x99999", "'99999x99999' is no shape"),
    ],
)
def test_a_name_that_gives_no_workload_is_reported(function: str, message: str, here: str) -> None:
    path = list(sys.path)
    with pytest.raises(lab.PaifuserError, match=message):
        lab.load(function.format(here=here))
    assert sys.path == path


def test_a_file_is_named_with_what_in_it_makes_the_model(
    here: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    work = lab.load(f"{here}.py:pair", width=6)
    assert (work.name, work.inputs.tensors[0].shape) == ("pair", (1, 6))
    assert work.loaded_as == f"{here}.py:pair"
    folder = Path.cwd()
    (folder / "elsewhere").mkdir()
    monkeypatch.chdir("elsewhere")
    again = lab.load(f"../{here}.py:pair")
    assert type(again.model) is type(work.model) and again.inputs.tensors[0].shape == (1, 4)
    assert lab.load(str(folder / f"{here}.py:work")).name == "mine"


def test_a_file_that_was_edited_is_run_again(here: str) -> None:
    file, name = Path(f"{here}.py"), f"{here}.py:pair"
    text = file.read_text()
    lab.load(name)
    first = sys.modules[here]
    assert lab.load(name).inputs.tensors[0].shape == (1, 4) and sys.modules[here] is first
    file.write_text(text.replace("width=4", "width=7"))
    assert lab.load(name).inputs.tensors[0].shape == (1, 7)
    file.write_text(f"{text}def wider():\n    return pair(8)\n")
    assert lab.load(f"{here}.py:wider").inputs.tensors[0].shape == (1, 8)
    last = sys.modules[here]
    file.write_text("def pair(:\n")
    with pytest.raises(UnknownModelError, match="SyntaxError"):
        lab.load(name)
    assert sys.modules[here] is last
    del vars(last)[SOURCE]  # as where the user imports it
    assert lab.load(name).inputs.tensors[0].shape == (1, 4) and sys.modules[here] is last


def test_a_function_is_given_no_batch_which_it_would_not_see(here: str) -> None:
    for name in (f"{here}:pair", f"{here}.py:Two@2x3,2x3"):
        with pytest.raises(WorkloadError, match="chooses its batch itself; leave batch=32 out"):
            lab.load(name, batch=32)
    work = lab.load(f"{here}:work")
    assert work.origin is not None
    work.origin = work.origin.model_copy(update={"batch": 32})  # as earlier versions kept it
    folder = lab.apply(work, lab.Recipe([])).save("mine")
    assert lab.load(folder).output().shape == lab.load(folder, trust=True).output().shape == (1, 2)
    with pytest.raises(FileError, match=r"cannot be loaded here: .*leave batch=3 out"):
        lab.load(folder, batch=3)


def test_a_folder_s_name_may_have_an_at_sign(here: str) -> None:
    folder = Path("me@home")
    folder.mkdir()
    Path(f"{here}.py").rename(folder / f"{here}.py")
    name = named(f"{folder}/{here}.py:model", trust=False, shapes="5x3")
    assert lab.load(name).inputs.tensors[0].shape == (5, 3)
    assert named(name, trust=False, shapes="2x3") == f"{folder}/{here}.py:model@2x3"


@pytest.mark.parametrize(
    ("name", "shapes"),
    [
        ("model", [(1, 3)]),
        ("model@5x3", [(5, 3)]),
        ("ready", [(1, 5)]),
        ("Two@2x3,1x3", [(2, 3), (1, 3)]),
        ("Words", [(1, 512)]),
        ("Words@2x7", [(2, 7)]),
    ],
)
def test_a_model_without_inputs_has_those_of_its_name_or_of_its_first_layer(
    name: str, shapes: list[tuple[int, ...]], here: str
) -> None:
    work = lab.load(f"{here}.py:{name}")
    assert [tensor.shape for tensor in work.inputs.tensors] == shapes
    assert work.loaded_as == f"{here}.py:{name}"
    assert work.name == name.partition("@")[0]
    again = lab.load(f"{here}.py:{name}").inputs.tensors
    assert all(map(torch.equal, work.inputs.tensors, again))


def test_a_file_of_code_alone_says_how_it_is_given(here: str) -> None:
    with pytest.raises(UnknownModelError, match=rf"such as \./{here}\.py:pair \(it defines pair"):
        lab.load(f"./{here}.py")
    assert here not in sys.modules, "it is not run to be listed"
    with pytest.raises(UnknownModelError, match=r"alone means its function 'make'"):
        lab.load(f"{here}.py", trust=True)
    with pytest.raises(FileError, match=r"There is no file 'absent\.py'"):
        lab.load("absent.py")
    with pytest.raises(FileError, match="is not Python code"):
        lab.load("broken_module.py")
    own = Path(f"{here}_own.py")
    own.write_text(MODULE.format(name=here) + "make = work\ndef make():\n    return work()\n")
    with pytest.raises(UnknownModelError, match=rf"{own.name}:make "):
        lab.load(own.name)
    assert lab.load(own.name, trust=True).loaded_as == f"{own.name}:make"


@pytest.mark.parametrize("suffix", [".pt", ".pth", ".safetensors"])
def test_a_file_of_weights_alone_says_what_to_do_with_it(suffix: str, here: str) -> None:
    Path(f"tiny{suffix}").touch()
    with pytest.raises(UnknownModelError, match=rf"holds weights, .*weights='./tiny{suffix}'"):
        lab.load(f"./tiny{suffix}")
    with pytest.raises(FileError, match=f"There is no file 'absent{suffix}'"):
        lab.load(f"absent{suffix}")


def test_a_file_of_llama_cpp_that_is_not_there_is_named() -> None:
    with pytest.raises(FileError, match=r"There is no GGUF file 'absent\.gguf'"):
        lab.load("absent.gguf")


@pytest.mark.parametrize("option", ["inputs", "sizes"])
def test_a_file_of_llama_cpp_has_a_batch_and_no_other_sizes(option: str) -> None:
    chosen: dict[str, Any] = {option: {}}
    with pytest.raises(WorkloadError, match=f"no option '{option}'; it has batch, seed, text"):
        lab.load("model.gguf", **chosen)


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
