"""Exported files are kept for later processes: once for equal models, private, whole, bounded."""

from __future__ import annotations

import os
import stat
import sys

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab.engines import exported
from paifuser_lab.engines.exported import FACTS, MODEL, kept_file
from tests.support.models import Small, images
from tests.support.processes import python


@pytest.fixture(autouse=True)
def cache(tmp_path, monkeypatch):
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "cache"))
    return tmp_path / "cache" / "engines"


class Export:
    """Writes a file of some bytes; counts."""

    def __init__(self, size=10):
        self.size, self.count = size, 0

    def __call__(self, path):
        self.count += 1
        path.write_bytes(b"x" * self.size)
        return ["image"]


def test_a_file_is_exported_once_for_a_key_and_anew_for_another_exporter(cache, monkeypatch):
    export = Export()
    path, names = kept_file("key", export)
    assert (path, names) == (kept_file("key", export)[0], ["image"]) and path.name == MODEL
    assert export.count == 1 and kept_file("other", export)[0] != path and export.count == 2
    monkeypatch.setattr(exported, "_exporter", lambda: "newer code")
    assert kept_file("key", export)[0] != path and export.count == 3
    assert stat.S_IMODE(cache.stat().st_mode) == 0o700


@pytest.mark.parametrize("damage", ["truncated", "no facts", "wrong facts"])
def test_a_damaged_file_is_exported_again(damage):
    export = Export()
    path, _ = kept_file("key", export)
    if damage == "truncated":
        path.write_bytes(b"x")
    elif damage == "no facts":
        (path.parent / FACTS).unlink()
    else:
        (path.parent / FACTS).write_text("{")
    assert kept_file("key", export) == (path, ["image"])
    assert export.count == 2 and path.read_bytes() == b"x" * 10
    assert os.listdir(path.parent.parent) == [path.parent.name], "nothing is left beside it"


def test_files_that_were_not_used_for_longest_make_room_for_the_newest(monkeypatch):
    monkeypatch.setattr(exported, "MOST_BYTES", 300)
    paths = [kept_file(key, Export(80))[0] for key in "ab"]
    for path, age in zip(paths, (100, 200), strict=True):
        os.utime(path.parent, (age, age))
    kept_file("a", Export(80))  # used again: b is older now
    written = paths[0].parent.with_name(".of another process")
    written.write_bytes(b"x" * 1000)
    kept_file("c", Export(80))
    assert paths[0].exists() and written.exists() and not paths[1].exists()
    assert kept_file("d", Export(1000))[0].exists(), "also where it alone is too large"


def test_an_export_that_fails_leaves_nothing_and_a_cache_is_not_needed(
    cache, tmp_path, monkeypatch
):
    with pytest.raises(ZeroDivisionError):
        kept_file("key", lambda path: path.write_bytes(b"half") / 0)
    assert not list(cache.iterdir())
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path / "file"))
    path, _ = kept_file("key", Export())
    assert path.read_bytes() == b"x" * 10 and tmp_path not in path.parents


def test_a_saved_variant_runs_in_a_new_process_without_another_export(tmp_path):
    work = lab.Workload(Small().eval(), images(1), name="small")
    variant = lab.apply(work, lab.Recipe(["fold", {"backend": "onnxruntime"}]))
    variant.save(tmp_path / "mine")
    torch.save(work.model.state_dict(), tmp_path / "weights.pt")
    code = """
import sys, torch, paifuser_lab as lab
from paifuser_lab.engines import exported
from tests.support.models import Small, images
exported.export_onnx = None  # must not be called
torch.manual_seed(0)
model = Small().eval()
model.load_state_dict(torch.load("weights.pt"))
again = lab.load("mine", work=lab.Workload(model, images(1), name="small"))
print(float(again.model(torch.ones(1, 3, 8, 8)).sum()))
"""
    paths = {"PYTHONPATH": os.pathsep.join(filter(None, sys.path))}
    run = python("-c", code, cwd=tmp_path, added=paths)
    expected = float(variant.model(torch.ones(1, 3, 8, 8)).sum())
    assert float(run.stdout) == pytest.approx(expected, abs=1e-6)


def test_models_of_other_weights_or_other_outputs_have_files_of_their_own():
    paths = set()
    for model in (Small().eval(), Small().eval()):
        variant = lab.apply(
            lab.Workload(model, images(1)), lab.Recipe([{"backend": "onnxruntime"}])
        )
        inputs = variant.workload.inputs
        paths.add(exported._exported(variant.model.module, inputs, open_batch=False)[0])
    assert len(paths) == 2
