"""Paths that cannot be written or are not regular files raise one clear sentence at once and leave
no partial files.
"""

from __future__ import annotations

import errno
import fcntl
import os
import signal
from pathlib import Path

import pytest
import torch
from safetensors import SafetensorError
from torch import nn

import paifuser_lab as lab
from paifuser_lab import Recipe, _files
from paifuser_lab.errors import FileError, PaifuserError, RecipeError, WorkloadError
from paifuser_lab.model.weights import save_weights, weights_hash
from paifuser_lab.training.resume import Checkpoint, CheckpointFile
from paifuser_lab.variant import folder
from tests.support.models import Small, images
from tests.support.processes import python

pytestmark = [pytest.mark.usefixtures("one_thread"), pytest.mark.timeout(60)]

LONG_NAME, LONE_SURROGATE = "a" * 300, "x\ud800"
KILLED = """
import os, signal, sys, torch
import paifuser_lab as lab
from paifuser_lab.variant import folder
def die(*args): os.kill(os.getpid(), signal.SIGKILL)
folder.save_weights = die
work = lab.Workload(torch.nn.Linear(2, 2), torch.ones(1, 2))
lab.apply(work, lab.Recipe([])).save(sys.argv[1])
"""
KILLED_BESIDE_ANOTHER_FILE = """
import os, signal, sys
from paifuser_lab._files import replacing
with replacing(sys.argv[1]) as temporary:
    temporary.with_name(".tmpAbCdEf").write_text("half")  # as safetensors does
    os.kill(os.getpid(), signal.SIGKILL)
"""


def variant() -> lab.Variant:
    return lab.apply(lab.Workload(Small(), images(), name="small"), Recipe([]))


def save_fails(monkeypatch: pytest.MonkeyPatch, error: int) -> None:
    """Weights cannot be saved for this error of the system, in the words of safetensors."""

    def fail(*args: object, **kwargs: object) -> None:
        message = f"I/O error: {os.strerror(error)} (os error {error})"
        raise SafetensorError(f"Error while serializing: {message}")

    monkeypatch.setattr("safetensors.torch.save_file", fail)


@pytest.mark.parametrize("error", [errno.ENOSPC, errno.EFBIG])
def test_a_full_disk_raises_a_sentence_about_the_folder_and_keeps_the_old_model(
    error: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    model_variant = variant()
    saved = model_variant.save(tmp_path / "saved")
    before = {path.name: path.read_bytes() for path in saved.iterdir()}
    save_fails(monkeypatch, error)
    for path in (saved, tmp_path / "new"):
        with pytest.raises(FileError) as caught:
            model_variant.save(path)
        assert str(caught.value) == (
            f"Cannot write into {path}: {os.strerror(error)}; free some space there "
            "or choose another folder."
        )
    assert [path.name for path in tmp_path.iterdir()] == ["saved"]
    assert {path.name: path.read_bytes() for path in saved.iterdir()} == before
    loaded = lab.load(tmp_path / "saved", work=lab.Workload(Small(), images()))
    assert weights_hash(loaded.model) == weights_hash(model_variant.module)


def test_a_full_disk_is_reported_for_a_single_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def no_room(handle: int) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(_files.os, "fsync", no_room)
    with pytest.raises(FileError, match=r"recipe.yaml into .*No space left.*free some space there"):
        Recipe(["fold"]).save(tmp_path / "recipe.yaml")
    assert not list(tmp_path.iterdir())


def test_a_file_is_flushed_by_a_handle_that_may_write_as_windows_asks(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def flushed(handle: int) -> None:
        if not fcntl.fcntl(handle, fcntl.F_GETFL) & (os.O_WRONLY | os.O_RDWR):
            raise OSError(errno.EBADF, os.strerror(errno.EBADF))

    monkeypatch.setattr(_files.os, "fsync", flushed)
    path = Recipe(["fold"]).save(tmp_path / "recipe.yaml")
    assert Recipe.load(path) == Recipe(["fold"])


def test_another_error_of_safetensors_is_reported_in_a_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(*args: object, **kwargs: object) -> None:
        raise SafetensorError("Error while serializing: InvalidHeaderDeserialization")

    monkeypatch.setattr("safetensors.torch.save_file", fail)
    with pytest.raises(FileError, match=r"weights cannot be written \(.*InvalidHeader"):
        save_weights(Small(), tmp_path / "w.safetensors")


def test_training_continues_if_a_checkpoint_does_not_fit_on_the_disk(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    save_fails(monkeypatch, errno.ENOSPC)
    kept = CheckpointFile("a full disk")
    kept.save(Checkpoint({"weight": torch.ones(2)}))
    assert "No space left on device" in kept.notes[0] and not kept.path.exists()


def test_a_save_removes_leftovers_of_a_killed_save_but_not_of_a_running_one(
    tmp_path: Path,
) -> None:
    ended = python("-c", KILLED, tmp_path / "saved", check=False)
    assert ended.returncode == -signal.SIGKILL
    (leftover,) = tmp_path.iterdir()
    (tmp_path / ".saved.mine").mkdir()
    with folder.staged(tmp_path / "saved") as staging:
        assert not leftover.exists()
        (staging / "file").write_text("half")
        variant().save(tmp_path / "saved")
        assert (staging / "file").read_text() == "half"
    assert sorted(path.name for path in tmp_path.iterdir()) == [".saved.mine", "saved"]


def test_what_a_library_left_beside_a_killed_file_is_removed_by_the_next_write(
    tmp_path: Path,
) -> None:
    target = tmp_path / "weights.safetensors"
    ended = python("-c", KILLED_BESIDE_ANOTHER_FILE, target, check=False)
    assert ended.returncode == -signal.SIGKILL
    assert len(list(tmp_path.iterdir())) == 1
    _files.write_text(target, "whole")
    assert list(tmp_path.iterdir()) == [target]


def odd_paths(folder: Path) -> dict[str, Path]:
    """Existing paths that are not regular files of a sensible size."""
    os.mkfifo(folder / "pipe")
    with (folder / "huge").open("wb") as file:
        file.truncate(1 << 40)  # sparse: it takes no disk space
    return {
        "pipe": folder / "pipe",
        "device": Path("/dev/zero"),
        "folder": folder,
        "huge": folder / "huge",
    }


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with a name")
@pytest.mark.parametrize("load", [Recipe.load, lab.Record.load, lab.Comparison.load])
@pytest.mark.parametrize(
    ("kind", "sentence"),
    [
        ("pipe", "is a pipe or a device, not a file"),
        ("device", "is a pipe or a device, not a file"),
        ("folder", "is a folder; give a file"),
        ("huge", "is 1,099,511,627,776 bytes, past the limit"),
    ],
)
def test_loading_a_path_that_is_not_a_regular_file_raises_at_once(
    load, kind: str, sentence: str, tmp_path: Path
) -> None:
    with pytest.raises(FileError, match=sentence):
        load(odd_paths(tmp_path)[kind])


def test_a_file_that_reports_size_0_and_never_ends_raises(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    path = tmp_path / "recipe.yaml"
    path.write_text("x" * 1000)
    with pytest.raises(FileError, match="past the limit of 10"):
        _files.read_text(path, limit_bytes=10)
    monkeypatch.setattr(_files, "size_of", lambda path: 0)
    with pytest.raises(FileError, match="longer than the limit of 10 bytes"):
        _files.read_text(path, limit_bytes=10)


@pytest.mark.skipif(not hasattr(os, "mkfifo"), reason="this system has no pipes with a name")
@pytest.mark.parametrize("kind", ["pipe", "device", "folder", "huge"])
def test_loading_a_model_from_a_path_that_is_not_its_folder_raises(
    kind: str, tmp_path: Path
) -> None:
    path = odd_paths(tmp_path)[kind]
    with pytest.raises(PaifuserError):
        lab.load(path)
    with pytest.raises(PaifuserError):
        lab.load(str(path))
    for name in ("recipe.yaml", "manifest.json"):
        folder = variant().save(tmp_path / "saved")
        (folder / name).unlink()
        (folder / name).symlink_to(path)
        with pytest.raises(PaifuserError):
            lab.load(folder)


@pytest.mark.parametrize("name", [LONG_NAME, LONE_SURROGATE, "nul\0"])
def test_an_invalid_file_name_raises(name: str, tmp_path: Path) -> None:
    with pytest.raises(FileError):
        variant().save(tmp_path / name)
    with pytest.raises(FileError):
        Recipe(["fold"]).save(tmp_path / name)
    with pytest.raises(FileError):
        Recipe.load(tmp_path / name)
    with pytest.raises(FileError):
        save_weights(nn.Linear(1, 1), tmp_path / name)
    for path in (name, tmp_path / name, f"./{name}"):
        with pytest.raises(PaifuserError) as caught:
            lab.load(path)
        str(caught.value).encode()
    assert not list(tmp_path.iterdir())


def test_the_longest_valid_file_name_can_be_saved(tmp_path: Path) -> None:
    longest = "ü" * 127
    assert Recipe.load(Recipe(["fold"]).save(tmp_path / longest)) == Recipe(["fold"])
    assert (variant().save(tmp_path / longest[1:]) / "manifest.json").is_file()


def test_a_name_that_cannot_be_encoded_raises() -> None:
    with pytest.raises(WorkloadError, match=r"'x\\ud800' .*cannot be written"):
        lab.Workload(Small(), images(), name=LONE_SURROGATE)
    with pytest.raises(WorkloadError, match="a name is text"):
        lab.Workload(Small(), images(), name=5)  # type: ignore[arg-type]
    with pytest.raises(RecipeError, match=r"'x\\ud800' .*cannot be written"):
        Recipe(["fold"], workload=LONE_SURROGATE)
    model = nn.Sequential()
    model.add_module(LONE_SURROGATE, nn.ReLU())
    with pytest.raises(WorkloadError, match=r"'x\\ud800' .*cannot be written"):
        lab.Workload(model, torch.ones(1, 2))


def test_a_name_of_300_characters_is_saved_and_shown(tmp_path: Path) -> None:
    model = nn.Sequential()
    model.add_module(LONG_NAME, nn.Linear(2, 2))
    work = lab.Workload(model, torch.ones(1, 2), name=LONG_NAME)
    lab.apply(work, Recipe([], workload=LONG_NAME)).save(tmp_path / "saved")
    assert lab.load(tmp_path / "saved", work=work).name.startswith(LONG_NAME)
    profile = lab.profile(work, runs=1)
    assert lab.Profile.load(profile.save(tmp_path / "profile.json")) == profile
    assert LONG_NAME in profile._repr_html_()
