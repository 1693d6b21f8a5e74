"""The export tab: targets with what stands in their way, an export on the worker, its files."""

from __future__ import annotations

import pytest
import torch

import paifuser_lab as lab
from paifuser_lab.converter import target_names
from paifuser_lab.deployment.folder import read_manifest
from paifuser_lab.records import Deployment, ExporterRow, ExportReport, LayerDifference
from paifuser_lab.widgets.recipe_edits import file_name
from paifuser_lab.widgets.tabs.exports import packed_deployment
from tests.support.bench import opened, send
from tests.support.models import Small


@pytest.fixture(scope="module")
def bench(tmp_path_factory):
    folder = tmp_path_factory.mktemp("bench")
    torch.manual_seed(0)
    work = lab.Workload(Small().eval(), torch.rand(1, 3, 8, 8), name="<small> net")
    with opened(work, folder) as bench:
        bench.folder = folder
        yield bench


def test_every_target_is_offered_with_its_obstacle(bench):
    offered = bench.state["export_targets"]
    assert [target["name"] for target in offered] == list(target_names())
    onnx, named = offered[0], {target["name"]: target["obstacles"] for target in offered}
    assert set(onnx["obstacles"].values()) == {""} and "fp16" in onnx["obstacles"]
    assert named["hls"]["fp16"] and named["hls"]["int8"].startswith(
        ("not written in int8: ", "hls")
    )
    assert "exports" not in bench.views and bench.state["queries"]["export"]["is_running"] is False


def test_an_export_writes_a_folder_and_hands_out_its_small_files(bench):
    states = []
    stop = bench.session.observe(lambda state: states.append(state.status))
    state = send(bench, do="export", targets=["onnx"], precision="", opset=17)
    stop()
    assert state.error is None and "exporting" in states
    view = bench.views["exports"]
    (row,) = view["targets"]["rows"]
    assert row["checked"]["text"] == "run here, compared" and row["checked"]["tone"] == "good"
    assert row["opset"] == "17" and float(row["error"]) < 1e-4
    assert view["folder"] == "small_net-export" and view["file"] is None
    hashes = read_manifest(bench.folder / view["folder"])
    files = {row["file"]: row for row in view["files"]["rows"]}
    assert {name: row["SHA-256"]["hint"] for name, row in files.items()} == hashes
    send(bench, **files["run.py"][""]["ask"])
    file = bench.views["exports"]["file"]
    content = (bench.folder / "small_net-export" / "run.py").read_bytes()
    assert (file["name"], file["data"]) == ("run.py", content)
    assert send(bench, do="export_file", name="").error is None
    assert bench.views["exports"]["file"] is None, "it would be sent with every later change"
    (bench.folder / "small_net-export" / "run.py").write_text("of another recipe")
    assert "holds another" in send(bench, do="export_file", name="run.py").error
    (bench.folder / "small_net-export" / "run.py").write_bytes(content)
    bench.session.set_error(None)


@pytest.mark.parametrize(
    ("request_", "sentence"),
    [
        ({"do": "export", "targets": []}, "at least one target"),
        ({"do": "export", "targets": ["tflite"]}, "no target 'tflite'"),
        ({"do": "export", "targets": ["torchscript"]}, "refused"),
        ({"do": "export", "targets": ["onnx"], "opset": "x"}, "whole number"),
        ({"do": "export_file", "name": "../secret"}, "no file"),
    ],
)
def test_a_wrong_request_is_one_sentence(bench, request_, sentence):
    assert sentence in send(bench, **request_).error
    bench.session.set_error(None)


def test_another_recipe_has_no_export_yet(bench):
    send(bench, do="choose", step={"fold": {}})
    assert "exports" not in bench.views
    assert "export it first" in send(bench, do="export_file", name="run.py").error
    send(bench, do="undo")
    assert bench.views["exports"]["folder"]


def deployment(**more):
    report = ExportReport(
        target="onnx", model="net", path="model.onnx", precision="fp32", bytes=10, convert_s=1.0,
        runs_here=False, not_verified="it needs macOS",
    )  # fmt: skip
    rows = (
        ExporterRow(target="onnx", title="ONNX", report=report),
        ExporterRow(target="hls", title="HLS", refused="layer '<b>' is not known"),
        ExporterRow(target="coreml", title="Core ML", obstacle="coremltools is missing"),
    )
    found = LayerDifference(
        target="onnx", layer="<b>", operator="Conv", tolerance=1e-4, before="a",
        before_error=1e-6, compared=3, probes=(("<b>", None), ("a", 1e-6)),
    )  # fmt: skip
    record = Deployment(workload="net", recipe="fold", machine="here", rows=rows, difference=found)
    return record.model_copy(update=more)


def test_a_record_alone_has_a_widget_and_a_static_twin(monkeypatch):
    panel = lab.show(deployment())
    assert panel.view == "exports"
    rows = panel.data["targets"]["rows"]
    assert [row["checked"]["tone"] for row in rows] == ["open", "bad", "bad"]
    notes = ["it needs macOS", "refused: layer '<b>' is not known", "coremltools is missing"]
    assert [row["note"] for row in rows] == notes
    assert panel.data["probes"]["rows"] == [
        {"layer": "<b>", "differs by": "not finite", "": "past"},
        {"layer": "a", "differs by": "1.0e-06", "": "within"},
    ]
    twin = panel.twin()
    assert "&lt;b&gt;" in twin and "<b>'" not in twin and "Nothing was written." in twin
    panel.close()
    assert packed_deployment(None) is None


def test_the_sentences_of_a_record_say_what_ran_and_what_did_not():
    table = deployment().table()
    assert [row["checked"] for row in table] == ["converted, not run", "refused", "refused"]
    assert table[0]["note"] == "it needs macOS" and table[1]["note"].startswith("refused: layer")
    assert "is not finite" in str(deployment())
    assert repr(deployment()) == "Deployment(net: Nothing was written. Refused: HLS, Core ML.)"
    assert [file_name(name) for name in ("../x", "a b", "...")] == ["x", "a_b", "model"]
