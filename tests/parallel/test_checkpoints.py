"""A checkpoint's folder: verified before anything is read, and nothing in it is executed."""

from __future__ import annotations

import json
import os
import pickle
import shutil

import pytest
import torch
from torch import nn

from paifuser_lab.errors import FileError
from paifuser_lab.parallel import Checkpoints, DataParallel
from paifuser_lab.parallel import checkpoints as module
from paifuser_lab.parallel.checkpoints import MANIFEST, write_manifest

EXECUTED = "paifuser-executed"


@pytest.fixture
def kept(tmp_path):
    """A model that is trained alone, and its folder of checkpoints with one in it."""
    strategy = DataParallel()
    model = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8))
    optimizer = torch.optim.SGD(model.parameters(), 0.1, momentum=0.9)
    strategy.prepare(model, optimizer)
    model(torch.randn(4, 8)).square().sum().backward()
    optimizer.step()
    checkpoints = Checkpoints(tmp_path, strategy)
    checkpoints.save(1, {"epoch": 0})
    yield checkpoints
    strategy.finish()


class Hostile:
    def __reduce__(self):
        return os.system, (f"touch {os.environ[EXECUTED]}",)


def cut(path):
    os.truncate(path, path.stat().st_size // 2)


def flip(path):
    content = bytearray(path.read_bytes())
    content[len(content) // 2] ^= 255
    path.write_bytes(bytes(content))


def test_a_checkpoint_restores_weights_optimizer_and_rate(kept):
    model, (optimizer,) = kept.strategy.model, kept.strategy.optimizers
    before = {name: value.clone() for name, value in model.state_dict().items()}
    momentum = optimizer.state[model[0].weight]["momentum_buffer"].clone()
    with torch.no_grad():
        for value in model.state_dict().values():
            value.zero_()
    optimizer.state.clear()
    optimizer.param_groups[0]["lr"] = 7.0
    assert kept.load() == (1, {"epoch": 0})
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)
    assert torch.equal(optimizer.state[model[0].weight]["momentum_buffer"], momentum)
    assert optimizer.param_groups[0]["lr"] == 0.1


@pytest.mark.parametrize(
    ("damage", "words"),
    [
        (lambda folder: next(folder.glob("*.distcp")).unlink(), "is missing"),
        (lambda folder: cut(next(folder.glob("*.distcp"))), "bytes and had"),
        (lambda folder: flip(next(folder.glob("*.distcp"))), "was altered"),
        (lambda folder: flip(folder / ".metadata"), ".metadata was altered"),
        (lambda folder: (folder / ".metadata").unlink(), ".metadata is missing"),
        (lambda folder: (folder / MANIFEST).unlink(), "it has no manifest"),
        (lambda folder: cut(folder / MANIFEST), "its manifest is damaged"),
        (lambda folder: (folder / "more").touch(), "more is not in its manifest"),
    ],
)
def test_a_damaged_folder_is_refused_and_nothing_changes(kept, damage, words):
    damage(kept.newest())
    model = kept.strategy.model
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(FileError, match=words):
        kept.load()
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)


def test_an_altered_manifest_is_refused(kept):
    path = kept.newest() / MANIFEST
    content = json.loads(path.read_text())
    content["body"]["step"] = 100
    path.write_text(json.dumps(content))
    with pytest.raises(FileError, match="its manifest was altered"):
        kept.load()


@pytest.mark.parametrize("has_manifest", [False, True])
def test_hostile_metadata_is_refused_and_nothing_is_executed(
    kept, tmp_path, monkeypatch, has_manifest
):
    """Also where whoever wrote it has made a manifest that fits."""
    monkeypatch.setenv(EXECUTED, str(tmp_path / EXECUTED))
    folder = kept.newest()
    (folder / ".metadata").write_bytes(pickle.dumps(Hostile()))
    if has_manifest:
        body = json.loads((folder / MANIFEST).read_text())["body"]
        write_manifest(folder, body)
    words = "system, which may execute code" if has_manifest else "nothing of it was read"
    with pytest.raises(FileError, match=words):
        kept.load()
    assert not (tmp_path / EXECUTED).exists()


def test_metadata_that_names_files_elsewhere_is_refused(kept):
    folder = kept.newest()
    metadata = pickle.loads((folder / ".metadata").read_bytes())
    for place in metadata.storage_data.values():
        place.relative_path = "../elsewhere"
    (folder / ".metadata").write_bytes(pickle.dumps(metadata))
    write_manifest(folder, json.loads((folder / MANIFEST).read_text())["body"])
    with pytest.raises(FileError, match=r"names '\.\./elsewhere', which is no file of its"):
        kept.load()


@pytest.mark.parametrize(
    ("layers", "optimizer", "words"),
    [
        ((nn.Linear(8, 8),), torch.optim.SGD, "'1.weight' has shape none here and \\(8,\\) there"),
        (
            (nn.Linear(8, 8), nn.BatchNorm1d(8, affine=False)),
            torch.optim.SGD,
            "'1.weight' has shape",
        ),
        ((nn.Linear(8, 8), nn.BatchNorm1d(8)), torch.optim.AdamW, "by SGD, and here it is AdamW"),
    ],
)
def test_a_checkpoint_of_another_model_or_optimizer_is_refused_whole(
    kept, layers, optimizer, words
):
    strategy, model = DataParallel(), nn.Sequential(*layers)
    strategy.prepare(model, optimizer(model.parameters(), 0.1))
    before = {name: value.clone() for name, value in model.state_dict().items()}
    with pytest.raises(FileError, match=words):
        Checkpoints(kept.folder, strategy).load()
    assert all(torch.equal(model.state_dict()[name], before[name]) for name in before)
    assert not strategy.optimizers[0].state
    strategy.finish()


def test_facts_that_are_no_json_are_refused_before_a_rank_waits(kept):
    with pytest.raises(FileError, match="the facts cannot be stored as JSON: Object of type set"):
        kept.save(2, {"seen": {1, 2}})
    assert [path.name for path in kept.folder.iterdir()] == ["step-0000000001"]


def test_what_was_being_written_when_it_was_killed_is_no_checkpoint(kept, monkeypatch):
    def killed(*args):
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(module, "write_manifest", killed)
        with pytest.raises(KeyboardInterrupt):
            kept.save(2)
    assert kept.load()[0] == 1
    for step in (3, 4, 5):
        kept.save(step)
    assert sorted(path.name for path in kept.folder.iterdir()) == [
        "step-0000000004", "step-0000000005",
    ]  # fmt: skip
    shutil.rmtree(kept.folder)
    assert kept.load() is None
