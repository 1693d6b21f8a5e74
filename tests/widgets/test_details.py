"""What the workbench says beside the table: offered steps, and the selected layer's times."""

from __future__ import annotations

from dataclasses import replace

import numpy
import pytest

from paifuser_lab import Recipe, Workload
from paifuser_lab.profiler import expected
from paifuser_lab.profiler.advice import measured_of
from paifuser_lab.records.text import readable_ms
from paifuser_lab.session.state import State
from paifuser_lab.widgets.details import COMPANY, layer_details, offers
from tests.support.advised import normalised, plain_calibration, profile, row
from tests.support.bench import opened
from tests.support.drawn import RECORDS
from tests.support.models import Small, images


def test_offers_are_the_steps_with_the_largest_expected_saving_and_its_usual_error(monkeypatch):
    monkeypatch.setattr(expected, "calibration", lambda: plain_calibration(error=0.1))
    small = row("head", "Other", 7.0, macs=0, verdict="overhead", overhead_ms=7.0)
    found = profile(*normalised(), small)
    state = State(recipe=Recipe([]), profile=found, baseline=found)
    engine, fold = offers(state)
    assert (engine["step"], fold["step"]) == ({"backend": {"name": "onnxruntime"}}, {"fold": {}})
    assert engine["saves_ms"] > fold["saves_ms"] == pytest.approx(1.0)
    assert fold["basis"] == "estimated ± 95%" and "are expected to become" in fold["why"]
    assert set(fold) == {"label", "step", "saves_ms", "basis", "why", "is_taken"}
    assert offers(replace(state, profile=found.model_copy(update={"engine": "other"}))) == []


def test_a_search_for_something_else_than_latency_leaves_the_offers_as_they_are(monkeypatch):
    monkeypatch.setattr(expected, "calibration", lambda: plain_calibration(error=0.1))
    small = row("head", "Other", 7.0, macs=0, verdict="overhead", overhead_ms=7.0)
    found = profile(*normalised(), small)
    state = State(recipe=Recipe([]), profile=found, baseline=found)
    size = RECORDS["SearchResult"].model_copy(update={"goal": "size"})
    throughput = size.model_copy(update={"goal": "throughput", "batch": 8})
    assert measured_of({"fold": {}}, size) and measured_of({"fold": {}}, throughput) is None
    assert len(offers(state)) == 2
    for searched in (size, throughput):
        assert offers(state.with_record("candidates", searched)) == offers(state)


def test_the_bar_and_the_sentence_have_one_time_before_also_when_the_model_is_profiled_again(
    tmp_path,
):
    with opened(Workload(Small(), images(), name="small"), tmp_path) as bench:
        bench.recipe = Recipe([{"precision": {"layers": {"head": "bf16"}}}])
        known = bench.wait(120.0).baseline
        bench.selected = "head"
        slower = [one.model_dump() | {"total_ms": 7 * one.total_ms} for one in known.layers]
        again = type(known).model_validate(known.model_dump() | {"layers": slower})
        bench.session._update(bench.session._version, baseline=again)
        times = numpy.frombuffer(bench.data["before"]["total_ms"], "<f4")
        bar = times[bench.data["layer"].index("head")]
        assert bar == pytest.approx(7 * known["head"].total_ms)
        told = [reason["sentence"] for reason in bench.detail["reasons"]]
        assert any(text.startswith(f"It took {readable_ms(float(bar))} ms") for text in told), told


@pytest.mark.parametrize("layer", ["a", "", "gone"])
def test_a_layer_is_charted_among_the_costliest_a_removed_one_as_it_was(layer):
    found = profile(*(row(name, ms=1.0 + place) for place, name in enumerate("abcdefghijklmnopq")))
    before = profile(row("gone"), row("a"))
    chart = layer_details(found, layer, before)["chart"]
    (panel,) = chart["rows"][0]
    (dots,) = (mark for mark in panel["marks"] if mark["mark"] == "Dots")
    keys = dots["key"]["names"]  # in the order of the dots, the costliest first
    assert len(keys) == COMPANY + bool(layer) and keys[0] == "q"
    assert (layer in keys) == bool(layer) and "b" not in keys


def test_a_layer_that_computes_nothing_has_no_chart():
    found = profile(row("a"), row("drop", "Dropout", flops=0, macs=0))
    assert layer_details(found, "drop", found)["chart"] is None
