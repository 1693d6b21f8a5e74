"""The experiments behind the README, the benchmark of builds, and FLOPs beside torch's counter."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from benchmarks import builds, child, experiment, fuse, profile
from benchmarks.__main__ import benches as command
from benchmarks.builds import BuildBench
from benchmarks.experiment import EXPERIMENTS, Experiment
from benchmarks.profile import FlopsBench, FlopsRow
from paifuser_lab.errors import MeasureError
from paifuser_lab.records import Explanation, Measurement, Reason, Record, SideBySide
from tests.support.drawn import comparison_of

pytestmark = pytest.mark.usefixtures("one_thread")


def test_flops_are_compared_with_torchs_counter_and_the_difference_is_named(tmp_path):
    measured = profile.bench(("vit-s-tiny", "no-such-model"), flops=True)
    (row,) = measured.rows
    assert row.shared == row.torch < row.ours
    assert row.ours - row.torch == sum(row.beyond_torch.values())
    assert next(iter(row.beyond_torch)) == "_scaled_dot_product_flash_attention_for_cpu"
    assert "no-such-model" in measured.summary
    assert Record.load(measured.save(tmp_path / "flops.json")) == measured


def test_builds_take_turns_with_an_empty_cache_and_then_with_the_same_filled(monkeypatch, tmp_path):
    calls = []

    def build(name, side, cache):
        calls.append((side, cache.parent, cache.exists()))
        cache.mkdir(exist_ok=True)
        return 10.0 if calls[-1][2] else 20.0

    monkeypatch.setattr(builds, "build_in_child", build)
    measured = builds.bench(("resnet18-tiny", "no-such-model"), rounds=2)
    assert [(side, filled) for side, _, filled in calls] == 2 * [
        ("fuse", False), ("inductor", False), ("fuse", True), ("inductor", True),
    ]  # fmt: skip
    assert calls[0][1] == calls[3][1] != calls[4][1]
    assert [(row.side, row.cold_s, row.warm_s) for row in measured.rows] == [
        ("fuse", (20.0, 20.0), (10.0, 10.0)),
        ("inductor", (20.0, 20.0), (10.0, 10.0)),
    ]
    assert measured.rows[0].steps == ("fold batch-norm", "channels last", "fuse", "replay")
    assert "no-such-model" in measured.summary
    assert Record.load(measured.save(tmp_path / "builds.json")) == measured


def test_a_build_runs_in_a_process_with_the_given_cache_folder(monkeypatch, tmp_path):
    called = {}

    def run(command, env, **_):
        called.update(command=command, env=env)
        return subprocess.CompletedProcess(command, 0, stdout="a warning\nbuild_s=2.5\n", stderr="")

    monkeypatch.setattr(child.subprocess, "run", run)
    assert builds.build_in_child("net", "inductor", tmp_path) == 2.5
    assert called["command"][0] == sys.executable
    assert called["env"]["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)
    builds.build_in_child("net", "fuse", tmp_path)
    assert called["env"]["PAIFUSER_CACHE"] == str(tmp_path)


def test_a_build_that_fails_reports_the_reason(monkeypatch, tmp_path):
    process = subprocess.CompletedProcess(
        [], 1, stdout="", stderr="Traceback\nValueError: no compiler\n"
    )
    monkeypatch.setattr(child.subprocess, "run", lambda *_, **__: process)
    with pytest.raises(
        MeasureError,
        match=r"net by fuse failed in .*: ValueError: no compiler",
    ):
        builds.build_in_child("net", "fuse", tmp_path)


def test_a_child_process_prints_its_build_time(capsys):
    builds.print_build_time("resnet18-tiny", "fuse")
    assert float(capsys.readouterr().out.strip().removeprefix("build_s=")) > 0


def test_an_unknown_experiment_is_refused():
    with pytest.raises(MeasureError, match="'luck' is not an experiment; there are cut, int4"):
        experiment.bench("luck")


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("cut", ["25%, repaired", "25%, as cut", "10%, repaired", "10%, as cut"]),
        ("int4", ["rounded", "trained", "trained, steps fixed"]),
        ("sums", ["sums in fp32", "sums in int8"]),
    ],
)
def test_an_experiment_compares_its_variants(monkeypatch, tmp_path, name, rows):
    calls = []

    def fake_compare(work, *, seconds, threads, metric=True, **named):
        assert threads == "each"
        calls.append(named)
        row = Measurement(name="baseline", threads=1)
        return comparison_of(row, workload=work.name)

    monkeypatch.setattr(experiment, "compare", fake_compare)
    measured = experiment.bench(name, ("resnet18-tiny", "no-such-model"), seconds=0.3)
    assert [list(named) for named in calls] == [rows]
    assert all(len(recipe) > 0 for recipe in calls[0].values())
    assert "no-such-model" in measured.summary
    assert len(measured.table()) == len(measured.comparisons[0].rows)
    assert Experiment.load(measured.save(tmp_path / "experiment.json")) == measured


def test_predicted_savings_are_shown_beside_the_measured_ones(monkeypatch):
    reason = Reason(
        topic="format", sentence="it is not channels-last", step={"layout": {}}, saves_ms=1.0
    )
    explained = Explanation(
        workload="net", layer="", kind="Net", ms=8.0, share=1.0, reasons=(reason,)
    )
    monkeypatch.setattr(experiment, "profile", lambda work, seconds: None)
    monkeypatch.setattr(experiment, "explain", lambda seen: explained)
    monkeypatch.setattr(
        experiment,
        "side_by_side",
        lambda work, variant, predicted, seconds: SideBySide(
            before=work.name,
            after=variant.recipe.label,
            before_ms=8.0,
            after_ms=6.5,
            predicted=predicted,
            rows=(),
        ),
    )
    measured = experiment.bench("promises", ("resnet18-tiny",), seconds=0.3)
    assert [(pair.after, pair.predicted) for pair in measured.promises] == [
        ("channels last", reason)
    ]
    assert "predicted −1.000 ms" in measured.table()[0]["note"]


def test_the_commands_have_an_option_for_each_separate_measurement(monkeypatch, tmp_path):
    path = tmp_path / "record.json"
    built = BuildBench(machine="here", rounds=1, rows=())
    monkeypatch.setattr(fuse, "bench_builds", lambda names: built if names == ["net"] else None)
    result = CliRunner().invoke(command, ["fuse", "--builds", "net", "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert Record.load(path) == built
    monkeypatch.setattr(profile, "load", lambda name: name)
    monkeypatch.setattr(
        profile, "_counted", lambda name: FlopsRow(model=name, ours=9, torch=8, beyond_torch={})
    )
    result = CliRunner().invoke(command, ["profile", "--flops", "net", "--json", str(path)])
    assert result.exit_code == 0, result.output
    assert [row.model for row in FlopsBench.load(path).rows] == ["net"]


def test_every_experiment_is_named_by_the_command():
    output = CliRunner().invoke(command, ["experiment", "--help"], env={"COLUMNS": "200"}).output
    assert all(name in output for name in EXPERIMENTS)
