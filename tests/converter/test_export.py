"""Exports: compared before they are delivered, refused in one sentence, and old files survive."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any, ClassVar

import onnx
import pytest
import torch
from torch import Tensor, nn

import paifuser_lab as lab
from paifuser_lab.converter import (
    Conversion,
    Exportable,
    ONNXConverter,
    Target,
    TargetOptions,
    export,
    exporters,
    registry,
    target_of,
)
from paifuser_lab.converter.target import Run
from paifuser_lab.errors import ExportError, FileError, NotVerifiableError, StoppedError
from paifuser_lab.records import ExporterRow, Exporters, ExportReport, LayerDifference, Record
from paifuser_lab.workload import known_inputs

pytestmark = pytest.mark.usefixtures("one_thread")


class Weights(Target):
    """A target that stores weights as torch does, and runs the model itself, a little wrongly if
    `wrong_by` says so.
    """

    name: ClassVar[str] = "weights"
    title: ClassVar[str] = "Weights"
    suffix: ClassVar[str] = ".weights"
    wrong_by: ClassVar[float] = 0.0
    wrong_from: ClassVar[int] = 1  # the call that is the first to be wrong
    needed: ClassVar[str] = ""
    subject: ClassVar[Exportable]

    def obstacle(self) -> str:
        return self.needed

    def convert(self, exportable: Exportable, path: Path, options: TargetOptions) -> Conversion:
        torch.save(exportable.module.state_dict(), path)
        path.with_name("beside.txt").write_text("beside")
        type(self).subject = exportable
        return Conversion(notes=("a note",))

    def opened(self, path: Path, threads: int) -> Run:
        calls = []

        def run(tensors: list[Tensor]) -> list[Tensor]:
            calls.append(tensors)
            wrong = self.wrong_by if len(calls) >= self.wrong_from else 0.0
            return [output * (1 + wrong) for output in self.subject.outputs(tensors)]

        return run

    def first_difference(
        self, exportable: Exportable, path: Path, tensors: list[Tensor], tolerance: float
    ) -> LayerDifference:
        return LayerDifference(target=self.name, layer="0", tolerance=tolerance, compared=1)


class Unrun(Weights):
    """The same on a machine that cannot run it."""

    def opened(self, path: Path, threads: int) -> Run:
        raise NotVerifiableError("it needs another machine.")


@pytest.fixture
def weights(monkeypatch: pytest.MonkeyPatch) -> type[Weights]:
    monkeypatch.setitem(registry.TARGETS, "weights", f"{__name__}:Weights")
    monkeypatch.setitem(registry.TARGETS, "unrun", f"{__name__}:Unrun")
    monkeypatch.setattr(Weights, "wrong_by", 0.0)
    return Weights


def net() -> lab.Workload:
    torch.manual_seed(0)
    return lab.Workload(nn.Sequential(nn.Linear(4, 3), nn.Tanh()), torch.randn(2, 4), name="net")


def nan_net() -> lab.Workload:
    work = net()
    nn.init.constant_(work.model[0].weight, torch.nan)
    return work


def test_a_file_is_compared_on_the_example_and_on_other_values_before_it_is_delivered(
    weights, tmp_path
):
    report = export(net(), "weights", tmp_path, seconds=0)
    assert report.file == tmp_path / "net.weights"
    assert (report.runs_here, report.error, report.notes) == (True, 0.0, ("a note",))
    assert report.compared == ("the example", "other values")
    assert report.bytes == sum(file.stat().st_size for file in tmp_path.iterdir())
    assert sorted(file.name for file in tmp_path.iterdir()) == ["beside.txt", "net.weights"]
    assert Record.load(report.save(tmp_path / "report.json")) == report
    assert "relative error" in report.sentence and report.latency_ms is None


def test_every_layer_stays_in_its_mode(weights, tmp_path, monkeypatch):
    work = net()
    work.model[1].eval()
    export(work, "weights", tmp_path, seconds=0)
    monkeypatch.setattr(Weights, "wrong_by", 1e-3)
    with pytest.raises(ExportError, match="no file was changed"):
        export(work, "weights", tmp_path, seconds=0)
    exporters(work, ["weights"], seconds=0)
    assert [module.training for module in work.model.modules()] == [True, True, False]


def test_the_errors_are_the_largest_over_all_other_values(weights, tmp_path, monkeypatch):
    found = iter([(0.0, 0.0), (2e-5, 0.1), (1e-5, 0.3)])
    monkeypatch.setattr(sys.modules[export.__module__], "output_error", lambda *_: next(found))
    report = export(net(), "weights", tmp_path, seconds=0)
    assert (report.error, report.max_error) == (2e-5, 0.3)
    assert not [*found]


def test_a_refusal_stands_where_the_search_for_the_layer_fails(weights, tmp_path, monkeypatch):
    monkeypatch.setattr(Weights, "wrong_by", 1e-3)
    monkeypatch.setattr(Weights, "first_difference", lambda *_: 1 / 0)
    with pytest.raises(ExportError, match=r"by 1.0e-03 .allowed 1e-04.; no file was changed"):
        export(net(), "weights", tmp_path, seconds=0)


@pytest.mark.parametrize(("first", "on"), [(1, "the example"), (2, "other values")])
def test_a_file_with_other_outputs_is_refused_and_the_old_one_stays(
    weights, tmp_path, monkeypatch, first, on
):
    old = tmp_path / "net.weights"
    old.write_text("old")
    monkeypatch.setattr(Weights, "wrong_by", 1e-3)
    monkeypatch.setattr(Weights, "wrong_from", first)
    with pytest.raises(
        ExportError, match=f"on {on} by 1.0e-03 .allowed 1e-04., first at layer '0'"
    ):
        export(net(), "weights", old, seconds=0)
    assert [file.read_text() for file in tmp_path.iterdir()] == ["old"]


def test_a_file_that_cannot_run_here_is_delivered_and_says_so(weights, tmp_path):
    report = export(net(), "unrun", tmp_path, seconds=1)
    assert (report.runs_here, report.error, report.speed_up) == (False, None, None)
    assert report.sentence.endswith("converted, not run; it needs another machine.")
    assert report.row()["error"] == "not run"


def test_an_export_is_timed_in_turn_with_the_live_model(weights, tmp_path):
    report = export(net(), "weights", tmp_path, seconds=0.01, threads=1)
    assert report.latency_ms and report.live_ms and report.speed_up and report.interval
    assert report.interval[0] <= report.speed_up <= report.interval[1]


def test_a_runtime_that_cannot_open_its_file_refuses_it_in_a_sentence(
    weights, tmp_path, monkeypatch
):
    def fails(self, path, threads):
        raise RuntimeError("no kernel for sort\nat 0x12")

    monkeypatch.setattr(Weights, "opened", fails)
    with pytest.raises(ExportError, match=r"cannot open its file of .* \(no kernel for sort\)"):
        export(net(), "weights", tmp_path)
    assert not any(tmp_path.iterdir())


def test_a_stopped_export_leaves_no_file(weights, tmp_path):
    with pytest.raises(StoppedError, match="stopped before the file was complete"):
        export(net(), "weights", tmp_path, seconds=0, should_stop=lambda: True)
    assert not list(tmp_path.iterdir())


def test_a_path_that_cannot_be_written_is_refused_in_a_sentence(weights, tmp_path):
    (tmp_path / "file").write_text("a file")
    with pytest.raises(FileError, match=r"Cannot write net\.weights into .*choose a folder"):
        export(net(), "weights", tmp_path / "file" / "net.weights", seconds=0)
    with pytest.raises(ExportError, match=r"written as '\.weights', and 'net.txt' ends otherwise"):
        export(net(), "weights", tmp_path / "net.txt", seconds=0)


FULL_THEN_KILLED = """
import os, resource, signal, sys
import torch
import paifuser_lab as lab
from pathlib import Path
path = Path(sys.argv[1]) / "net.onnx"
work = lab.Workload(torch.nn.Linear(64, 64), torch.randn(1, 64), name="net")
signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
limits = resource.getrlimit(resource.RLIMIT_FSIZE)
resource.setrlimit(resource.RLIMIT_FSIZE, (4096, limits[1]))
try:
    lab.export(work, "onnx", path, seconds=0)
except lab.PaifuserError as error:
    resource.setrlimit(resource.RLIMIT_FSIZE, limits)
    print(error)
    print(*[file.name for file in path.parent.iterdir()], flush=True)
from paifuser_lab.converter import onnx_file
onnx_file._session = lambda *_: os.kill(os.getpid(), signal.SIGKILL)
lab.export(work, "onnx", path, seconds=0)
"""


def test_on_a_full_disk_and_after_a_kill_the_old_file_survives(tmp_path):
    (tmp_path / "net.onnx").write_text("old")
    command = [sys.executable, "-c", FULL_THEN_KILLED, str(tmp_path)]
    ended = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert "free some space there" in ended.stdout, ended.stderr
    assert ended.stdout.splitlines()[-1] == "net.onnx", "nothing lies beside the old file"
    assert ended.returncode == -signal.SIGKILL
    assert (tmp_path / "net.onnx").read_text() == "old"
    assert len(list(tmp_path.iterdir())) == 2, "what it had begun lies beside it"
    lab.export(net(), "onnx", tmp_path / "net.onnx", seconds=0)
    assert [file.name for file in tmp_path.iterdir()] == ["net.onnx"]
    onnx.checker.check_model(str(tmp_path / "net.onnx"))


def test_the_inputs_of_a_bare_model_are_those_of_its_last_workload(tmp_path):
    model = nn.Sequential(nn.LayerNorm(4), nn.Linear(4, 2))
    unknown = r"No inputs are known of this Sequential: give an example"
    with pytest.raises(ExportError, match=unknown):
        ONNXConverter().convert(model, path=tmp_path)
    lab.Workload(model, torch.randn(3, 4))
    report = ONNXConverter().convert(model, path=tmp_path / "model.onnx", seconds=0)
    assert report.inputs == ("input",) and report.error is not None
    graph = onnx.load(report.path).graph
    assert [dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim] == [3, 4]


def test_the_inputs_of_a_bare_model_are_inferred_from_its_first_layer_and_the_note_says_so(
    tmp_path,
):
    model = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten())
    converter = ONNXConverter(precision="fp16", opset=13)
    report = converter.convert(model.eval(), path=tmp_path / "model.onnx", seconds=0)
    assert "no inputs were given: 1×3×224×224 was inferred from '0' (Conv2d)" in report.notes[0]
    graph = onnx.load(report.path).graph
    assert [dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim] == [1, 3, 224, 224]


def test_a_model_with_a_sparse_output_is_refused_in_one_sentence(tmp_path):
    class Sparse(nn.Linear):
        def forward(self, x):
            return super().forward(x).to_sparse()

    with pytest.raises(lab.PaifuserError, match=r"Sparse outputs a sparse tensor .*to_dense"):
        lab.export(lab.Workload(Sparse(3, 2), torch.rand(2, 3)), "onnx", tmp_path, seconds=0)


def test_an_onnx_file_keeps_the_preprocessing_and_gives_it_back(tmp_path):
    stated = {"mean": 0.4, "std": (0.1, 0.2, 0.3), "order": "BGR", "classes": ("a", "b")}
    work = lab.Workload(nn.Conv2d(3, 2, 3).eval(), torch.rand(1, 3, 8, 8), preprocessing=stated)
    path = lab.export(work, "onnx", tmp_path / "model.onnx", seconds=0).path
    assert lab.load(path).preprocessing == work.preprocessing
    assert lab.Workload.from_onnx(path).preprocessing == work.preprocessing
    model = onnx.load(path)
    key = "paifuser_lab.preprocessing"
    assert {prop.key for prop in model.metadata_props} >= {key, "paifuser_lab.labels"}
    for text, sentence in ({"[": "cannot be read", '{"std": 0}': "std.0: Input"}).items():
        onnx.helper.set_model_props(model, {key: text})
        onnx.save(model, path)
        with pytest.raises(lab.PaifuserError, match=sentence):
            lab.load(path)


def test_the_inputs_of_a_model_that_is_trained_with_acceleration_are_those_of_its_last_step(
    tmp_path,
):
    model = nn.Sequential(nn.Linear(4, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    lab.Workload(model, torch.randn(3, 4))
    others = dict.fromkeys(("channels_last", "fused_optimizer", "memory_pool", "compile"), False)
    lab.enable(precision=None, **others)
    try:
        for _ in range(3):
            optimizer.zero_grad()
            model(torch.randn(6, 4)).sum().backward()
            optimizer.step()
        report = ONNXConverter().convert(model, path=tmp_path / "model.onnx", seconds=0)
    finally:
        lab.disable()
    graph = onnx.load(report.path).graph
    assert [dim.dim_value for dim in graph.input[0].type.tensor_type.shape.dim] == [6, 4]
    assert known_inputs(model).args[0].shape == (3, 4), "afterwards they are the workload's again"


@pytest.mark.parametrize(
    ("subject", "target", "options", "message"),
    [
        (net, "torchscript", {}, "torchscript is refused: tracing fixes every branch"),
        (net, "nowhere", {}, "no target 'nowhere' to export to; there are onnx"),
        (net, "onnx", {"opset": 99}, "Opset 99 cannot be had.*up to 23"),
        (net, "onnx", {"opset": "new"}, "ONNX: opset: "),
        (net, "onnx", {"opsett": 13}, "ONNX has no option 'opsett'; it has precision, dynamic"),
        (net, "onnx", {"precision": "int8"}, "net has no layer in int8.*apply the step"),
        (net, "onnx", {"precision": "fp7"}, "ONNX is not written in fp7; choose one of fp32"),
        (lambda: 3, "onnx", {}, "A int cannot be exported; give a model"),
        (nan_net, "onnx", {}, "its output for the example holds a NaN"),
        (
            lambda: torch.jit.script(nn.Linear(2, 2)),
            "onnx",
            {},
            "scripted or traced model cannot be exported",
        ),
    ],
    ids=lambda value: str(value) if isinstance(value, str) else None,
)
@pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")
def test_what_cannot_be_had_is_refused_in_one_sentence(
    subject: Any, target: str, options: dict[str, Any], message: str, tmp_path: Path
) -> None:
    with pytest.raises(ExportError, match=message) as refused:
        export(subject(), target, tmp_path, seconds=0, **options)
    assert "\n" not in str(refused.value)
    assert not list(tmp_path.iterdir())


def test_the_table_of_targets_says_of_each_what_it_did_here(weights, monkeypatch):
    monkeypatch.setattr(Weights, "wrong_by", 1.0)
    table = exporters(net(), ["onnx", "weights"], seconds=0)
    assert [(row.converts_here, row.runs_here) for row in table.rows] == [
        (True, True),
        (False, False),
    ]
    assert "differs from the live model" in table.rows[1].refused
    assert table.table()[1]["run here"] == "no"
    monkeypatch.setattr(Weights, "needed", "it needs a <compiler>")
    row = exporters(net(), ["weights"], seconds=0).rows[0]
    assert (row.obstacle, row.refused, row.report) == ("it needs a <compiler>", "", None)
    html = Exporters(model="net", rows=(row,))._repr_html_()
    assert "&lt;compiler&gt;" in html and "<compiler>" not in html
    with pytest.raises(ExportError, match="cannot convert here: it needs a <compiler>"):
        export(net(), "weights", seconds=0)


def test_every_target_is_told_from_the_others_and_names_what_it_needs():
    for name in registry.TARGETS:
        target = target_of(name)
        assert target.name == name and target.title and target.suffix.startswith(".")
        assert target.obstacle() == "" or target.obstacle().strip()
        assert target.precisions and target.Options().precision is None


def test_a_record_of_an_earlier_version_still_loads():
    row = ExporterRow(target="onnx", title="ONNX")
    assert (row.converts_here, row.runs_here) == (False, False)
    report = ExportReport(
        target="onnx",
        model="net",
        path="net.onnx",
        precision="fp32",
        bytes=1,
        convert_s=0.1,
        runs_here=False,
    )
    assert report.row()["opset"] == "–" and os.fspath(report.file) == "net.onnx"
