"""Weights: their hash, and files of them that are whole, fit, and never run code."""

from __future__ import annotations

import io
import os
import pickle
import zipfile
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from safetensors.torch import save_file, save_model
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import FileError
from paifuser_lab.model.weights import (
    answer_hash,
    load_weights,
    save_weights,
    weights_bytes,
    weights_hash,
)
from tests.support.models import Small, Tied, ids


def test_equal_weights_have_equal_hashes_however_they_lie_in_memory() -> None:
    model, other = Small(), Small()
    other.load_state_dict(model.state_dict())
    assert weights_hash(model) == weights_hash(other.to(memory_format=torch.channels_last))
    assert weights_hash(model) == weights_hash(model.state_dict())


CHANGES = {
    "the last bit of a weight": lambda state: {
        **state,
        "w": torch.nextafter(state["w"], torch.tensor(9.0)),
    },
    "a zero's sign": lambda state: {**state, "z": -state["z"]},
    "a name": lambda state: {("v" if name == "w" else name): one for name, one in state.items()},
    "a shape": lambda state: {**state, "w": state["w"].reshape(3, 2)},
    "a type": lambda state: {**state, "w": state["w"].view(torch.int32)},
    "one more": lambda state: {**state, "extra": torch.empty(0)},
    "two that swap": lambda state: {**state, "w": state["w"].flip(0)},
}


@pytest.mark.parametrize("change", CHANGES.values(), ids=CHANGES)
def test_any_difference_changes_the_hash(change: Any) -> None:
    state = {
        "w": torch.arange(6.0).reshape(2, 3),
        "z": torch.zeros(1),
        "flag": torch.tensor(True),
        "empty": torch.empty(0, 3),
    }
    assert (
        weights_hash(change(state))
        != weights_hash(state)
        == weights_hash(dict(reversed(state.items())))
    )


@pytest.mark.parametrize(
    "dtype", [torch.bfloat16, torch.float16, torch.float64, torch.int8, torch.bool, torch.complex64]
)
def test_every_type_is_hashed(dtype: torch.dtype) -> None:
    one = torch.ones(3).to(dtype)
    assert (
        weights_hash({"a": one})
        == weights_hash({"a": one.clone()})
        != weights_hash({"a": one.clone().zero_()})
    )


def test_an_output_of_any_structure_has_a_hash() -> None:
    one, two = torch.ones(2), torch.zeros(2)
    assert (
        answer_hash((one, {"b": two, "n": None}))
        == answer_hash([one, two])
        != answer_hash([two, one])
    )


def test_weights_survive_a_file(tmp_path: Path) -> None:
    model, other = Small(), Small()
    path = save_weights(model, tmp_path / "deep" / "w.safetensors")
    assert weights_hash(other) != weights_hash(model)
    load_weights(other, path)
    assert weights_hash(other) == weights_hash(model)


def test_tied_weights_are_stored_once_and_still_tied(tmp_path: Path) -> None:
    model, other = Tied(), Tied()
    path = save_weights(model, tmp_path / "w.safetensors")
    load_weights(other, path)
    assert other.head.weight is other.table.weight
    assert weights_hash(other) == weights_hash(model) and torch.equal(other(x := ids()), model(x))
    assert weights_bytes(model) == 4 * (7 * 4 + 4 * 4 + 4)
    assert path.stat().st_size < weights_bytes(model) + 7 * 4 * 4 + 600, (
        "the file has the table once"
    )


def test_tied_weights_that_safetensors_saved_are_loaded_and_still_tied(tmp_path: Path) -> None:
    model, other = Tied(), Tied()
    save_model(model, str(tmp_path / "w.safetensors"), {"format": "pt"})
    load_weights(other, tmp_path / "w.safetensors")
    assert other.head.weight is other.table.weight
    assert weights_hash(other) == weights_hash(model) and torch.equal(other(x := ids()), model(x))


class Expanded(nn.Module):
    """A buffer and a parameter with many values in one place of memory."""

    def __init__(self, value: float) -> None:
        super().__init__()
        self.register_buffer("shift", torch.tensor([value]).expand(4))
        self.scale = nn.Parameter(torch.full((1, 4), value).expand(2, 4))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return values * self.scale + self.shift


def test_tensors_made_by_expand_are_saved_and_loaded(tmp_path: Path) -> None:
    model, other = Expanded(3.0), Expanded(5.0)
    path = save_weights(model, tmp_path / "w.safetensors")
    load_weights(other, path)
    assert weights_hash(other) == weights_hash(model)
    x = torch.randn(2, 4)
    assert torch.equal(other(x), model(x))
    work = lab.Workload(model, x)
    variant = lab.apply(work, lab.Recipe(["layout"]))
    assert (
        lab.Variant.load(variant.save(tmp_path / "folder"), work).weights_hash
        == variant.weights_hash
    )


def test_a_state_dict_of_torch_is_read_too(tmp_path: Path) -> None:
    model, other = Small(), Small()
    torch.save(model.state_dict(), tmp_path / "w.pt")
    load_weights(other, tmp_path / "w.pt")
    assert weights_hash(other) == weights_hash(model)


class Bomb:
    def __reduce__(self) -> Any:
        return os.mkdir, ("exploded",)


def zipped(content: Any) -> bytes:
    buffer = io.BytesIO()
    torch.save(content, buffer)
    return buffer.getvalue()


CODE = {
    "beside weights": lambda: zipped({"w": torch.ones(1), "bomb": Bomb()}),
    "alone": lambda: zipped(Bomb()),
    "as a bare pickle": lambda: pickle.dumps(Bomb()),
    "as a whole model": lambda: zipped(nn.Linear(1, 1)),
}


@pytest.mark.parametrize("name", ["w.pt", "w.bin", "w.safetensors"])
@pytest.mark.parametrize("content", CODE.values(), ids=CODE)
def test_pickled_code_is_refused_and_does_not_run(
    content: Any, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    model = Small()
    before = weights_hash(model)
    (tmp_path / name).write_bytes(content())
    with pytest.raises(
        FileError, match=r"may execute code|not a sound safetensors|cannot be read as weights"
    ):
        load_weights(model, tmp_path / name)
    assert not (tmp_path / "exploded").exists() and weights_hash(model) == before


def test_the_bomb_of_these_tests_would_go_off(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    pickle.loads(pickle.dumps(Bomb()))
    assert (tmp_path / "exploded").exists()


def test_code_is_named_as_the_reason(tmp_path: Path) -> None:
    (tmp_path / "w.pt").write_bytes(zipped({"bomb": Bomb()}))
    with pytest.raises(
        FileError, match=r"w\.pt holds something other than weights, which may execute code"
    ):
        load_weights(Small(), tmp_path / "w.pt")


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory) -> dict[str, bytes]:
    folder = tmp_path_factory.mktemp("saved")
    model = nn.Linear(4, 3)
    torch.save(model.state_dict(), folder / "w.pt")
    save_weights(model, folder / "w.safetensors")
    return {name: (folder / name).read_bytes() for name in ("w.pt", "w.safetensors")}


def refused_or_whole(content: bytes, name: str, folder: Path) -> bool:
    """Whether a file was refused; if it was not, it must have been loaded whole."""
    model = nn.Linear(4, 3)
    before = weights_hash(model)
    (folder / name).write_bytes(content)
    try:
        load_weights(model, folder / name)
    except FileError as error:
        assert weights_hash(model) == before and name in str(error) and "\n" not in str(error)  # noqa: PT017 (it need not fail)
        return True
    return False


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
def test_a_file_cut_short_anywhere_is_refused(
    name: str, saved: dict[str, bytes], tmp_path: Path
) -> None:
    whole = saved[name]
    for length in range(0, len(whole), max(1, len(whole) // 60)):
        assert refused_or_whole(whole[:length], name, tmp_path), length
    assert not refused_or_whole(whole, name, tmp_path)


def test_a_flipped_bit_in_the_weights_is_noticed(saved: dict[str, bytes], tmp_path: Path) -> None:
    whole = bytearray(saved["w.safetensors"])
    for place in range(len(whole) - 60, len(whole), 7):
        whole[place] ^= 1
        (tmp_path / "w.safetensors").write_bytes(whole)
        with pytest.raises(FileError, match="is damaged: its weights do not have the hash"):
            load_weights(nn.Linear(4, 3), tmp_path / "w.safetensors")
        whole[place] ^= 1


@pytest.mark.parametrize("name", ["w.pt", "w.safetensors"])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_flipped_bytes_raise_a_file_error(
    name: str, data: Any, saved: dict[str, bytes], tmp_path_factory: pytest.TempPathFactory
) -> None:
    whole = bytearray(saved[name])
    for _ in range(data.draw(st.integers(1, 4))):
        whole[data.draw(st.integers(0, len(whole) - 1))] ^= data.draw(st.integers(1, 255))
    refused_or_whole(bytes(whole), name, tmp_path_factory.mktemp("flipped"))


UNFIT = {
    "a missing weight": (
        lambda state: {name: one for name, one in state.items() if name != "norm.bias"},
        "has no weights for 'norm.bias'",
    ),
    "one too many": (
        lambda state: {**state, "tail.weight": torch.ones(1)},
        "has weights for 'tail.weight', which the model does not have",
    ),
    "a wrong shape": (
        lambda state: {**state, "head.weight": torch.ones(5, 9)},
        r"has shape \(5, 9\) for 'head.weight' where the model has \(5, 8\)",
    ),
}


@pytest.mark.parametrize("suffix", [".pt", ".safetensors"])
@pytest.mark.parametrize(("change", "message"), UNFIT.values(), ids=UNFIT)
def test_weights_of_another_model_change_nothing(
    change: Any, message: str, suffix: str, tmp_path: Path
) -> None:
    model, path = Small(), tmp_path / f"w{suffix}"
    before = weights_hash(model)
    other = change({name: one + 1 for name, one in Small().state_dict().items()})
    torch.save(other, path) if suffix == ".pt" else save_file(other, path)
    with pytest.raises(FileError, match=message):
        load_weights(model, path)
    assert weights_hash(model) == before


@pytest.mark.parametrize(
    "content", [[torch.ones(1)], {"epoch": 3}, torch.ones(2)], ids=["list", "numbers", "tensor"]
)
def test_a_file_of_something_else_is_no_state_dict(content: Any, tmp_path: Path) -> None:
    torch.save(content, tmp_path / "w.pt")
    with pytest.raises(FileError, match="does not hold a state_dict of tensors"):
        load_weights(Small(), tmp_path / "w.pt")


@pytest.mark.parametrize("aliases", ["[1]", "{", '{"a": "none"}', '{"a": ["b"]}'])
def test_aliases_that_lead_nowhere_are_refused(aliases: str, tmp_path: Path) -> None:
    save_file({"weight": torch.ones(1)}, tmp_path / "w.safetensors", {"aliases": aliases})
    with pytest.raises(FileError, match="not a sound safetensors file"):
        load_weights(nn.Linear(1, 1), tmp_path / "w.safetensors")


def test_a_missing_file_is_reported(tmp_path: Path) -> None:
    with pytest.raises(FileError, match="There is no weights file"):
        load_weights(Small(), tmp_path / "w.safetensors")


def test_a_failure_in_the_middle_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = save_weights(Small(), tmp_path / "w.safetensors")
    old = path.read_bytes()

    def break_off(tensors: Any, filename: Path, metadata: Any) -> None:
        Path(filename).write_bytes(b"half")
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("safetensors.torch.save_file", break_off)
    with pytest.raises(FileError, match="No space left on device"):
        save_weights(Small(), path)
    assert path.read_bytes() == old and os.listdir(tmp_path) == ["w.safetensors"]


def test_a_zip_that_is_none_of_torchs_is_refused(tmp_path: Path) -> None:
    with zipfile.ZipFile(tmp_path / "w.pt", "w") as file:
        file.writestr("readme.txt", "hello")
    with pytest.raises(FileError, match=r"w\.pt"):
        load_weights(Small(), tmp_path / "w.pt")


def test_weights_of_another_number_format_are_refused_and_nothing_is_loaded(tmp_path):
    path = save_weights(Small().bfloat16(), tmp_path / "half.safetensors")
    model = Small()
    before = weights_hash(model)
    with pytest.raises(
        FileError, match=r"has torch.bfloat16 for '.*' where the model has torch.float32"
    ):
        load_weights(model, path)
    assert weights_hash(model) == before


@pytest.mark.filterwarnings("ignore:Sparse")
@pytest.mark.parametrize("layout", [torch.sparse_coo, torch.sparse_csr])
def test_sparse_weights_in_a_file_are_refused(layout: torch.layout, tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    weight = model.weight.detach().to_sparse(layout=layout)
    torch.save({**model.state_dict(), "weight": weight}, tmp_path / "w.pt")
    with pytest.raises(FileError, match=r"w\.pt has a sparse tensor .* for 'weight'.*to_dense"):
        load_weights(model, tmp_path / "w.pt")


def test_complex_weights_in_a_file_are_refused(tmp_path: Path) -> None:
    model = nn.Linear(4, 4)
    weight = model.weight.detach().to(torch.complex64)
    torch.save({**model.state_dict(), "weight": weight}, tmp_path / "w.pt")
    with pytest.raises(FileError, match=r"torch\.complex64 for 'weight'"):
        load_weights(model, tmp_path / "w.pt")
