"""What a bench writes beside its record: processor, date, versions, commit."""

from __future__ import annotations

import shutil
import sys
from datetime import date
from types import ModuleType

import pytest
import torch

from paifuser_lab.bench import header as module
from paifuser_lab.bench.header import git, header, header_of, save
from paifuser_lab.bench.trust import TrustBench
from paifuser_lab.machine import machine_label
from paifuser_lab.records import Record

RECORD = TrustBench(machine="here", rows=())


def test_a_record_names_where_and_when_it_was_measured_and_is_read_as_before(tmp_path):
    path = tmp_path / "trust.json"
    save(RECORD, path)
    known = header_of(path)
    assert known is not None and known.processor == machine_label() and known.isa
    assert known.cores >= 1 and date.fromisoformat(known.date)
    assert known.versions["torch"] == torch.__version__
    assert Record.load(path) == RECORD
    RECORD.save(path)
    assert header_of(path) is None and Record.load(path) == RECORD


def test_versions_are_those_of_torch_and_of_what_was_used(monkeypatch):
    for name in module.COMPARED:
        monkeypatch.delitem(sys.modules, name, raising=False)
    assert list(header().versions) == ["torch"]
    monkeypatch.setitem(sys.modules, "onnxruntime", ModuleType("onnxruntime"))
    assert list(header().versions) == ["torch", "onnxruntime"]


@pytest.mark.skipif(shutil.which("git") is None, reason="git is not installed")
def test_a_commit_is_marked_where_code_was_changed_and_not_where_a_record_was(
    tmp_path, monkeypatch
):
    monkeypatch.setattr(module, "ROOT", tmp_path)
    commit = module.commit.__wrapped__
    assert commit() is None, "a wheel has none"
    code = tmp_path / "paifuser_lab" / "code.py"
    code.parent.mkdir()
    code.write_text("1")
    who = ("-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false")
    for words in (["init", "-q"], ["add", "-A"], [*who, "commit", "-qm", "code"]):
        git(tmp_path, *words)
    known = git(tmp_path, "rev-parse", "--short", "HEAD")
    (tmp_path / "record.json").write_text("{}")
    assert known and commit() == known
    code.write_text("2")
    assert commit() == f"{known}+"
    monkeypatch.setattr(module, "ROOT", code.parent)
    assert commit() is None, "a wheel inside another checkout has none"


def test_a_tool_that_is_not_there_answers_nothing(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert git(tmp_path, "status") is None
