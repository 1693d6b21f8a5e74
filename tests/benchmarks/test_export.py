"""`python -m benchmarks export`: what was exported, what was refused, and how pages show it."""

from __future__ import annotations

from pathlib import Path

import pytest

from benchmarks import export as benches
from benchmarks.export import NONE, ExportBench, bench
from benchmarks.measured import Records
from benchmarks.pages import block
from paifuser_lab.errors import ExportError
from paifuser_lab.records import ExporterRow, Exporters, ExportReport
from tests.support.tricky_exports import TRICKY

pytestmark = pytest.mark.usefixtures("one_thread")


def report(target: str, model: str = "resnet18-tiny", **more: object) -> ExportReport:
    ran = {"runs_here": True, "error": 1.5e-6, "latency_ms": 2.0, "live_ms": 4.0}
    given = {"path": "m", "precision": "fp32", "bytes": 1_500_000, "convert_s": 1.0}
    return ExportReport(target=target, title=target, model=model, **ran | given | more)


@pytest.fixture
def few_targets(monkeypatch: pytest.MonkeyPatch) -> None:
    """Three targets that need no converting: one takes all, one only the small net, one is not
    here.
    """

    def exporters(work: object = None, names: object = None, **_: object) -> Exporters:
        model = "small" if work is None else "resnet18-tiny"
        fpga = ExporterRow(target="hls", title="FPGA", refused="too many weights | for a chip.")
        if work is None:
            fpga = fpga.model_copy(update={"refused": "", "report": report("hls", "small")})
        mac = report("coreml", runs_here=False, error=None, latency_ms=None, not_verified="macOS.")
        rows = [
            ExporterRow(target="onnx", title="ONNX", report=report("onnx", model)),
            fpga,
            ExporterRow(target="coreml", title="Core ML", report=mac),
            ExporterRow(target="litert", title="LiteRT", obstacle="not installed."),
        ]
        return Exporters(model=model, rows=tuple(r for r in rows if not names or r.target in names))

    monkeypatch.setattr(benches, "exporters", exporters)


def test_a_small_selection_is_measured_and_shown(few_targets, tmp_path, monkeypatch):
    monkeypatch.setattr(benches, "TRICKY", {"buffer": TRICKY["buffer"]})

    def export(subject: object, target: str, path: Path, **options: str) -> ExportReport:
        if options["precision"] == "int4":
            raise ExportError("ONNX is not written in int4; choose fp32.")
        return report(target, path=str(path))

    monkeypatch.setattr(benches, "export", export)
    found = bench(["resnet18-tiny"], precisions=["fp32", "int4"], seconds=0)
    done, refused = found.rows
    assert done.report is not None and done.report.path == "model.onnx"
    assert refused.refused.startswith("ONNX is not written in int4") and not found.failures
    assert {row.outcome for row in found.tricky} == {"refused"}
    assert "2 exports of models that are hard to export: 0 right, 2 refused" in found.summary
    assert len(found.table()) == 2 and len(found.table_of_targets()) == 4
    found.save(tmp_path / "export.json")
    assert ExportBench.load(tmp_path / "export.json") == found
    page = block("export", Records(tmp_path))
    assert "| resnet18-tiny | onnx | fp32 |" in page and "| int4 | – | refused |" in page


def test_the_table_of_targets_says_what_ran_on_what_and_what_the_others_need(few_targets, tmp_path):
    found = bench(["resnet18-tiny"], precisions=[], tricky=False, seconds=0)
    found.save(tmp_path / "export.json")
    rows = block("targets", Records(tmp_path)).splitlines()[-4:]
    assert rows == [
        "| ONNX | yes | yes | 1.5e-6 | 1.5 | 4 → 2 | – |",
        "| FPGA | small net | yes | 1.5e-6 | 1.5 | 4 → 2 | too many weights \\| for a chip. |",
        "| Core ML | yes | no | – | 1.5 | – | macOS. |",
        "| LiteRT | no | no | – | – | – | not installed. |",
    ]


def test_without_a_model_the_targets_are_tried_with_the_small_one(few_targets):
    found = bench([NONE], tricky=False, seconds=0)
    assert found.rows == () and found.targets is not None and found.targets.model == "small"
    assert bench([NONE], tricky=False, every=False, seconds=0).targets is None
