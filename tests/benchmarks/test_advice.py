"""The bench of advice: each family is predicted by the others, and advice reads what was fitted."""

from __future__ import annotations

from pathlib import Path

import pytest
from typer.testing import CliRunner

from benchmarks import advice
from benchmarks.__main__ import benches as command
from benchmarks.advice import AdviceBench, AdviceRow, fitted, rows_of
from paifuser_lab.errors import MeasureError
from paifuser_lab.profiler import expected
from paifuser_lab.records import Measurement, Quality
from tests.support.advised import profile, row
from tests.support.drawn import comparison_of

MEASURED = Path(__file__).parent.parent.parent / "docs" / "measured" / "advice.json"
MODELS = ("alpha-1", "alpha-1-tiny", "beta-2", "gamma-3", "delta", "epsilon")


def made_row(model: str, folded: float, *, remains: float = 0.0, kind: str = "fold") -> AdviceRow:
    """A model with a share of time in batch-norm, of which a part remains."""
    terms = {"folded": folded, "rest": 1 - folded}
    return AdviceRow(model=model, kind=kind, terms=terms, left=1 - folded * (1 - remains))


def made(**facts: object) -> AdviceBench:
    rows = [made_row(name, 0.1 * index) for index, name in enumerate(MODELS, 1)]
    return AdviceBench(machine="a machine", rows=tuple(rows), **facts)


def test_coefficients_are_found_again_and_are_never_negative():
    found = fitted("fold", [made_row("m", share, remains=0.5) for share in (0.1, 0.3, 0.6, 0.9)])
    assert found["folded"] == pytest.approx(0.5, abs=0.15)
    assert found["rest"] == pytest.approx(1.0, abs=0.1)
    beyond = fitted("fold", [made_row("m", share, remains=-0.5) for share in (0.1, 0.3, 0.6)])
    assert min(beyond.values()) >= 0


def test_a_model_is_predicted_without_its_family():
    odd = [made_row("odd-1", 0.5, remains=1.0), made_row("odd-2-tiny", 0.5, remains=1.0)]
    rows = (*odd, *made().rows)
    found = {each.row.model: each for each in AdviceBench(machine="m", rows=rows).predicted}
    assert found["odd-1"].left == pytest.approx(0.5, abs=0.1), "as others lose all of it"
    assert found["odd-1"].row.left == 1.0 and found["odd-1"].error == pytest.approx(-0.69, abs=0.15)
    assert {made_row(name, 0.1).family for name in ("resnet18-tiny", "resnet50")} == {"resnet"}


def test_the_ranks_of_predicted_and_measured_agree_where_the_terms_explain_the_models():
    measured = made()
    assert measured.correlations[0] == pytest.approx(1.0)
    assert measured.correlations_of_medians[0] < 0
    assert "rank correlation 1.00 over all" in measured.summary
    assert "alpha-1, fold: " in measured.summary and "→ 0.90" in measured.summary
    assert [(row["step"], row["models"]) for row in measured.table()] == [("fold", "6")]


def test_a_measurement_becomes_rows_with_shares_of_the_profile():
    before = profile(row("conv", ms=10.0, macs=1, overhead_ms=4.0, flops=int(2e8)))
    rows = [
        Measurement(name="baseline", threads=1, latency_ms=10.0),
        Measurement(
            name="onnxruntime",
            threads=1,
            latency_ms=5.0,
            speedup=2.0,
            speedup_interval=(1.6, 2.5),
        ),
        Measurement(name="fold", threads=1, failure="cannot"),
    ]
    compared = comparison_of(*rows, quality=Quality(others_share=0.5))
    (found,) = rows_of("m", before, compared)
    assert (found.kind, found.left, found.left_interval) == ("onnxruntime", 0.5, (0.4, 0.625))
    assert found.terms == {"entry": 0.0001, "calls": 0.4, "fp32": 0.2, "passes": 0.0}
    assert found.machine_was == "busy"


def test_the_bench_measures_every_kind_of_step_and_inductor_where_it_compiles_quickly(monkeypatch):
    asked = {}

    def fake_compare(work, **named):
        asked[work.name] = {name for name in named if name in expected.KINDS}
        raise MeasureError("enough")

    monkeypatch.setattr(advice, "compare", fake_compare)
    monkeypatch.setattr(advice, "profile", lambda work, **_: profile(row("conv")))
    measured = advice.bench(("resnet18-digits-tiny", "resnet18-tiny"))
    assert measured.failures == dict.fromkeys(asked, "enough")
    assert asked["resnet18-tiny"] == set(expected.KINDS)
    assert asked["resnet18-digits-tiny"] == set(expected.KINDS) - {"inductor"}


def test_the_command_fits_a_record_again_and_writes_the_coefficients(monkeypatch, tmp_path):
    monkeypatch.setattr(advice, "FILE", tmp_path / "expected.json")
    monkeypatch.setattr(advice, "KINDS", {"fold": expected.KINDS["fold"]})
    path = made(failures={"zeta": "why"}).save(tmp_path / "advice.json")
    result = CliRunner().invoke(command, ["advice", "--record", str(path)])
    assert result.exit_code == 0 and "zeta: why" in result.output
    assert not (tmp_path / "expected.json").exists()
    assert CliRunner().invoke(command, ["advice", "--record", str(path), "--fit"]).exit_code == 0
    written = expected.Calibration.load(tmp_path / "expected.json")
    assert written == made().calibration and written.models == len(MODELS)


def test_a_fit_without_every_kind_of_step_is_refused_and_writes_nothing(monkeypatch, tmp_path):
    monkeypatch.setattr(advice, "FILE", tmp_path / "expected.json")
    with pytest.raises(MeasureError, match=r"of onnxruntime, .* cannot be fitted: .* name more"):
        made().fit()
    assert not (tmp_path / "expected.json").exists()


def test_the_coefficients_of_this_version_are_those_of_the_record():
    measured = AdviceBench.load(MEASURED)
    shipped = expected.Calibration.load(expected.FILE)
    assert shipped.models == len(measured.models)
    for name, own in measured.calibration.steps.items():
        assert shipped.steps[name].left == pytest.approx(own.left, rel=0.02, abs=0.02)
        assert shipped.steps[name].error == pytest.approx(own.error, rel=0.02)


def test_predicted_and_measured_effects_on_the_zoo_have_a_rank_correlation_of_0_8():
    over_all, within = AdviceBench.load(MEASURED).correlations
    assert over_all >= 0.8 and within >= 0.8
