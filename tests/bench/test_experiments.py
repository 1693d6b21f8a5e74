"""The experiments behind the README, the bench of building, and FLOPs beside torch's counter."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from paifuser_lab.bench import builds, experiments, flops
from paifuser_lab.bench.builds import BuildBench
from paifuser_lab.bench.experiments import EXPERIMENTS, Experiment
from paifuser_lab.bench.flops import FlopsBench
from paifuser_lab.cli.commands import bench as command
from paifuser_lab.errors import MeasureError
from paifuser_lab.records import Comparison, Explanation, Measurement, Reason, Record, SideBySide

pytestmark = pytest.mark.usefixtures("one_thread")


def test_flops_are_set_beside_the_plain_counter_and_the_difference_is_named(tmp_path):
    measured = flops.bench(("vit-s-tiny", "no-such-model"))
    (row,) = measured.rows
    assert row.shared == row.torch < row.ours
    assert row.ours - row.torch == sum(row.beyond_torch.values())
    assert next(iter(row.beyond_torch)) == "_scaled_dot_product_flash_attention_for_cpu"
    assert "no-such-model" in measured.summary
    assert Record.load(measured.save(tmp_path / "flops.json")) == measured


def test_builds_take_turns_with_an_empty_cache_and_then_with_the_same_filled(monkeypatch, tmp_path):
    asked = []

    def build(name, side, cache):
        asked.append((side, cache.parent, cache.exists()))
        cache.mkdir(exist_ok=True)
        return 10.0 if asked[-1][2] else 20.0

    monkeypatch.setattr(builds, "build_in_child", build)
    measured = builds.bench(("resnet18-tiny", "no-such-model"), rounds=2)
    assert [(side, filled) for side, _, filled in asked] == 2 * [
        ("fuse", False), ("inductor", False), ("fuse", True), ("inductor", True),
    ]  # fmt: skip
    assert asked[0][1] == asked[3][1] != asked[4][1]
    assert [(row.side, row.cold_s, row.warm_s) for row in measured.rows] == [
        ("fuse", (20.0, 20.0), (10.0, 10.0)),
        ("inductor", (20.0, 20.0), (10.0, 10.0)),
    ]
    assert measured.rows[0].steps == ("fold batch-norm", "channels last", "fuse")
    assert "no-such-model" in measured.summary
    assert Record.load(measured.save(tmp_path / "builds.json")) == measured


def test_a_build_runs_in_a_process_whose_cache_is_the_folder_that_is_given(monkeypatch, tmp_path):
    given = {}

    def run(command, env, **_):
        given.update(command=command, env=env)
        return subprocess.CompletedProcess(command, 0, stdout="a warning\nbuild_s=2.5\n", stderr="")

    monkeypatch.setattr(builds.subprocess, "run", run)
    assert builds.build_in_child("net", "inductor", tmp_path) == 2.5
    assert given["command"][0] == sys.executable
    assert given["env"]["TORCHINDUCTOR_CACHE_DIR"] == str(tmp_path)
    builds.build_in_child("net", "fuse", tmp_path)
    assert given["env"]["PAIFUSER_CACHE"] == str(tmp_path)


def test_a_build_that_fails_says_why(monkeypatch, tmp_path):
    ended = subprocess.CompletedProcess(
        [], 1, stdout="", stderr="Traceback\nValueError: no compiler\n"
    )
    monkeypatch.setattr(builds.subprocess, "run", lambda *_, **__: ended)
    with pytest.raises(
        MeasureError, match="Building net by fuse failed in its process: ValueError: no compiler"
    ):
        builds.build_in_child("net", "fuse", tmp_path)


def test_what_a_child_does_is_timed_and_told(capsys):
    builds.tell("resnet18-tiny", "fuse")
    assert float(capsys.readouterr().out.strip().removeprefix("build_s=")) > 0


def test_an_experiment_that_is_not_known_is_said():
    with pytest.raises(MeasureError, match="'luck' is no experiment; there are cut, int4"):
        experiments.bench("luck")


@pytest.mark.parametrize(
    ("name", "rows"),
    [
        ("cut", ["25%, repaired", "25%, as cut", "10%, repaired", "10%, as cut"]),
        ("int4", ["rounded", "trained", "trained, steps fixed"]),
        ("sums", ["sums in fp32", "sums in int8"]),
    ],
)
def test_an_experiment_puts_its_ways_side_by_side(monkeypatch, tmp_path, name, rows):
    asked = []

    def without_applying(work, *, seconds, metric=True, **named):
        asked.append(named)
        row = Measurement(name="baseline", threads=1)
        return Comparison(
            workload=work.name, machine="here", baseline=row.name, rounds=1, rows=(row,)
        )

    monkeypatch.setattr(experiments, "compare", without_applying)
    measured = experiments.bench(name, ("resnet18-tiny", "no-such-model"), seconds=0.3)
    assert [list(named) for named in asked] == [rows]
    assert all(len(recipe) > 0 for recipe in asked[0].values())
    assert "no-such-model" in measured.summary
    assert len(measured.table()) == len(measured.comparisons[0].rows)
    assert Experiment.load(measured.save(tmp_path / "experiment.json")) == measured


def test_promises_stand_beside_what_was_achieved(monkeypatch):
    reason = Reason(
        topic="format", sentence="it is not channels-last", step={"layout": {}}, saves_ms=1.0
    )
    explained = Explanation(
        workload="net", layer="", kind="Net", ms=8.0, share=1.0, reasons=(reason,)
    )
    monkeypatch.setattr(experiments, "profile", lambda work, seconds: None)
    monkeypatch.setattr(experiments, "explain", lambda seen: explained)
    monkeypatch.setattr(
        experiments,
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
    measured = experiments.bench("promises", ("resnet18-tiny",), seconds=0.3)
    assert [(one.after, one.predicted) for one in measured.promises] == [("channels last", reason)]
    assert "predicted −1.000 ms" in measured.table()[0]["note"]


@pytest.mark.parametrize(
    ("words", "module", "record"),
    [
        (["profile", "--flops", "net"], flops, FlopsBench(machine="here", rows=())),
        (["fuse", "--builds", "net"], builds, BuildBench(machine="here", rounds=1, rows=())),
    ],
)
def test_the_commands_take_a_switch_for_what_is_measured_alone(
    monkeypatch, tmp_path, words, module, record
):
    monkeypatch.setattr(module, "bench", lambda names: record if names == ("net",) else None)
    path = tmp_path / "record.json"
    ended = CliRunner().invoke(command, [*words, "--json", str(path)])
    assert ended.exit_code == 0, ended.output
    assert Record.load(path) == record


def test_every_experiment_is_named_by_the_command():
    output = CliRunner().invoke(command, ["experiment", "--help"], env={"COLUMNS": "200"}).output
    assert all(name in output for name in EXPERIMENTS)
