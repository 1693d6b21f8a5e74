"""`paifuser-lab export`: files of a model by name, and of a saved variant with its recipe."""

from __future__ import annotations

import json

import onnx
import pytest
from typer.testing import CliRunner

import paifuser_lab as lab
from paifuser_lab.cli.export import _comparison, load_subject
from paifuser_lab.cli.program import app
from paifuser_lab.records import Exporters

pytestmark = pytest.mark.usefixtures("one_thread")


def test_a_saved_variant_is_exported_with_its_recipe(tmp_path):
    lab.apply(lab.load("resnet18-tiny"), lab.Recipe(["fold"])).save(tmp_path / "mine")
    arguments = ["export", str(tmp_path / "mine"), "--out", str(tmp_path), "--opset", "13"]
    saved = tmp_path / "report.json"
    done = CliRunner().invoke(
        app, [*arguments, "--seconds", "0", "-o", "inline_bytes=0", "--save", str(saved)]
    )
    assert done.exit_code == 0, done.output
    assert "opset 13" in done.output
    (row,) = Exporters.load(saved).rows
    assert row.report is not None and list(tmp_path.glob("*.data"))
    props = {entry.key: entry.value for entry in onnx.load(row.report.path).metadata_props}
    assert json.loads(props["paifuser_lab.recipe"]) == [{"fold": {}}]


def test_what_a_target_refuses_is_printed_and_the_command_fails(tmp_path):
    command = ["export", "resnet18-tiny", "--out", str(tmp_path), "--precision", "int8"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code == 1 and not list(tmp_path.iterdir())
    assert "has no layer in int8" in " ".join(done.output.split())


def test_options_of_a_deployment_are_refused_without_one(tmp_path):
    command = ["export", "resnet18-tiny", "--out", str(tmp_path), "--mean", "0.5"]
    done = CliRunner().invoke(app, command)
    assert done.exit_code and not list(tmp_path.iterdir())
    assert "--mean is for --deploy" in " ".join(str(done.output or done.exception).split())


def test_a_name_of_the_zoo_is_no_folder(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    rows = (lab.Measurement(name="baseline", threads=1),)
    known = lab.Comparison(workload="w", machine="m", baseline="baseline", rounds=1, rows=rows)
    lab.apply(lab.load("resnet18-tiny"), lab.Recipe(["fold"])).save("resnet18-tiny", known)
    for name, kind, report in (
        ("resnet18-tiny", lab.Workload, None),
        ("./resnet18-tiny", lab.Variant, known),
    ):
        assert isinstance(load_subject(name, trust=False), kind)
        assert _comparison(name, None) == report
