"""The bench of verdicts: which of them contradict a quiet machine."""

from __future__ import annotations

import psutil
import pytest

import paifuser_lab as lab
from paifuser_lab.bench import trust
from paifuser_lab.bench.trust import TrustBench, TrustRow, _busy, _contradicts, _is_large, _usual
from paifuser_lab.records import Quality, Record
from tests.support.models import Small, images


def row(word, processes=0, by_interval=None, others=0.01):
    return TrustRow(
        model="m",
        recipe="fold",
        processes=processes,
        speedup=1.0,
        interval=(0.9, 1.1),
        word=word,
        word_by_interval=by_interval or word,
        quality=Quality(others_share=others),
    )


def test_the_usual_verdict_is_that_of_most_quiet_comparisons():
    rows = [row("faster"), row("no difference"), row("faster")]
    assert _usual(rows, "fold") == "faster"


def test_an_effect_is_large_by_the_median_of_the_quiet_comparisons():
    rows = [row("faster").model_copy(update={"speedup": ratio}) for ratio in (0.5, 0.6, 1.0)]
    assert _is_large(rows, ("m", "fold")) and not _is_large(rows, ("m", "layout"))
    assert not _is_large([*rows, row("faster"), row("faster")], ("m", "fold"))


@pytest.mark.parametrize(
    ("word", "contradicts"),
    [("faster", False), ("slower", True), ("no difference", True), ("not told", False)],
)
def test_a_verdict_that_is_not_told_contradicts_nothing(word, contradicts):
    assert _contradicts(word, "faster") is contradicts


def test_the_table_has_the_quiet_and_the_busy_machine():
    rows = (
        row("faster").model_copy(update={"speedup": 2.0}),
        row("not told", 2, "slower", 0.6).model_copy(update={"contradicts_by_interval": True}),
        row("faster", 2, others=0.4),
        row("slower", 2, others=0.5).model_copy(update={"contradicts": True}),
    )
    quiet, busy = TrustBench(machine="paper", rows=rows).table()
    assert (quiet["machine"], quiet["verdicts"], quiet["wrong"]) == ("quiet", "1 of 1", "0 (0%)")
    assert busy["verdicts"] == "2 of 3" and busy["wrong"] == "1 (50%)"
    assert busy["of large effects"] == "2 of 3" and busy["wrong by the interval alone"] == "1"
    assert busy["others took"] == "40%–60%" and busy["calls waited"] == "–"


def test_busy_processes_run_inside_the_block_only():
    before = {child.pid for child in psutil.Process().children()}
    with _busy(2):
        inside = {child.pid for child in psutil.Process().children()} - before
        assert len(inside) == 2
    assert not inside & {child.pid for child in psutil.Process().children()}


def test_a_model_is_compared_quietly_and_beside_busy_processes(monkeypatch, tmp_path):
    monkeypatch.setattr(trust, "load", lambda name: lab.Workload(Small(), images(), name=name))
    monkeypatch.setattr(trust, "RECIPES", (["fold"],))
    monkeypatch.setattr(trust, "QUIET_TRIES", 1)
    monkeypatch.setattr(trust, "ROUNDS", 2)
    monkeypatch.setattr(trust, "SETTLE_S", 0.0)
    measured = trust.bench(("small",), tries=1)
    assert [row.processes for row in measured.rows] == [0, 2] and not measured.failures
    assert Record.load(measured.save(tmp_path / "t.json")) == measured
