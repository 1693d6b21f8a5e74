"""An artefact reaches its place whole, and takes nothing of somebody else's with it."""

from __future__ import annotations

import os
import shutil
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab.converter import Exportable, Target, TargetOptions, export, registry
from paifuser_lab.converter.delivery import _synced, deliver
from paifuser_lab.converter.target import Run
from paifuser_lab.errors import ExportError, FileError


class Fails(Target):
    """A target whose writer begins a file and fails with an error of its own."""

    name, title, suffix = "fails", "Fails", ".fails"

    def obstacle(self) -> str:
        return ""

    def convert(self, exportable: Exportable, path: Path, options: TargetOptions) -> object:
        path.write_bytes(b"half")
        raise RuntimeError("writer 7\nsays no")

    def opened(self, path: Path, threads: int) -> Run:
        raise AssertionError


@pytest.fixture
def net(monkeypatch: pytest.MonkeyPatch) -> lab.Workload:
    monkeypatch.setitem(registry.TARGETS, "fails", f"{__name__}:Fails")
    return lab.Workload(nn.Linear(4, 3), torch.randn(2, 4), name="net")


@pytest.mark.parametrize("is_killed", [False, True])
def test_a_kill_never_leaves_an_artefact_with_the_weights_of_another(
    tmp_path, monkeypatch, is_killed
):
    goal, stage = tmp_path / "net.xml", tmp_path / "stage"
    stage.mkdir()
    for name in ("net.xml", "net.bin"):
        (tmp_path / name).write_text("old")
        (stage / name).write_text("new")
    moved = []

    def replace(source, target):
        if is_killed and moved:
            raise KeyboardInterrupt
        moved.append(target)
        os.rename(source, target)

    monkeypatch.setattr("paifuser_lab.converter.delivery.os.replace", replace)
    with suppress(KeyboardInterrupt):
        deliver(stage, goal)
    found = {
        name: (tmp_path / name).read_text()
        for name in ("net.bin", "net.xml")
        if (tmp_path / name).exists()
    }
    assert found == ({"net.bin": "new"} if is_killed else {"net.bin": "new", "net.xml": "new"})


def test_a_folder_is_replaced_by_a_folder_as_a_whole(tmp_path):
    goal = tmp_path / "net.package"
    for content in ("old", "new"):
        deliver(staged(tmp_path, "net.package/one", content), goal)
    assert [file.read_text() for file in goal.iterdir()] == ["new"]


def staged(folder: Path, name: str, content: str = "new") -> Path:
    """A stage with one file of this name."""
    file = folder / "stage" / name
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(content)
    return folder / "stage"


def test_windows_flushes_files_by_a_handle_that_may_write_and_no_folder(tmp_path, monkeypatch):
    stage = staged(tmp_path, "net.package/one")
    files, opened, real = [stage, *stage.rglob("*")], [], os.open

    def noted(file, flags):
        opened.append((file.name, flags))
        return real(file, flags)

    with monkeypatch.context() as windows:
        windows.setattr(os, "open", noted)
        windows.setattr(os, "name", "nt")
        for file in files:
            _synced(file)
    assert len(files) == 3 and opened == [("one", os.O_RDWR)]


@pytest.mark.parametrize("written", ["net.pt2", "net.tensorrt/model.onnx"])
def test_another_artefact_of_its_name_leaves_an_onnx_file_its_weights(tmp_path, written):
    weights = tmp_path / "net.1a2b3c4d.data"
    weights.write_text("of net.onnx")
    deliver(staged(tmp_path, written), tmp_path / Path(written).parts[0])
    assert weights.exists()


@pytest.mark.parametrize(
    ("there", "written", "why"),
    [
        ("net.x/engine", "net.x/model", "has 'engine', which no export wrote"),
        ("net.x/engine", "net.x", "is a folder, and a file is to be written there"),
        ("net.x", "net.x/model", "is a file, and a folder is to be written there"),
    ],
)
def test_what_somebody_else_put_where_an_artefact_goes_stays(tmp_path, there, written, why):
    mine = tmp_path / there
    mine.parent.mkdir(exist_ok=True)
    mine.write_text("mine")
    with pytest.raises(ExportError, match=f"{why}; no file was changed, .*give another path"):
        deliver(staged(tmp_path, written), tmp_path / "net.x")
    assert mine.read_text() == "mine"


def test_a_writer_that_fails_is_told_in_a_sentence_and_leaves_nothing(net, tmp_path):
    with pytest.raises(ExportError, match=r"Fails cannot convert net: .*writer 7; no file") as told:
        export(net, "fails", tmp_path, seconds=0)
    assert "\n" not in str(told.value) and not list(tmp_path.iterdir())


@pytest.mark.parametrize("error", [RuntimeError("writer 7"), ExportError("Fails cannot take net")])
def test_a_writer_that_fails_on_a_full_disk_says_that_it_is_full(net, tmp_path, monkeypatch, error):
    monkeypatch.setattr(Fails, "convert", lambda *_: raised(error))
    monkeypatch.setattr(shutil, "disk_usage", lambda _: SimpleNamespace(free=4096))
    with pytest.raises(FileError, match=r"Cannot write net.fails .* free some space there"):
        export(net, "fails", tmp_path, seconds=0)
    assert not list(tmp_path.iterdir())


def raised(error: Exception) -> list[Tensor]:
    raise error
