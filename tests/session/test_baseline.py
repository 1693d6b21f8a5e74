"""A session has one latency of the unchanged model, on every view and whatever is chosen."""

from __future__ import annotations

import re

import numpy
import pytest

import paifuser_lab as lab
from paifuser_lab.machine import machine_label
from paifuser_lab.measure import timing
from paifuser_lab.records import (
    Achieved,
    Candidate,
    Candidates,
    Measurement,
    Quality,
)
from paifuser_lab.records.text import readable_ms
from paifuser_lab.session.baseline import Baseline
from paifuser_lab.widgets.details import current
from tests.support.bench import TIMEOUT_S, opened
from tests.support.drawn import changed, comparison_of, point
from tests.support.models import Small, images

FOLD = {"fold": {}}


def compared(ms, *, others=0.0, threads=1, spread=0.1):
    row = Measurement(
        name="baseline", threads=threads, latency_ms=ms, speedup=1.0,
        spread_ms=(ms - spread, ms + spread),
    )  # fmt: skip
    known = {"workload": "small", "machine": machine_label()}
    return comparison_of(row, **known, quality=Quality(others_share=others))


@pytest.mark.parametrize(
    ("timings", "shown"),
    [
        ([compared(5.0)], 5.0),
        ([compared(5.0), compared(4.0)], 4.0),  # others only slow it down
        ([compared(5.0), compared(4.0), compared(9.0)], 5.0),
        ([compared(3.0), compared(5.0, others=0.5)], 3.0),
        ([compared(9.0, others=0.5), compared(5.0)], 5.0),
        ([compared(3.0, threads=2), compared(5.0, threads=1)], 5.0),
    ],
)
def test_the_baseline_is_the_middle_of_its_timings_on_the_quietest_machine(timings, shown):
    baseline = Baseline()
    baseline.add(compared(1.0), is_rough=True)
    assert baseline.ms == 1.0
    for one in timings:
        baseline.add(one)
    assert baseline.ms == shown and baseline.comparison[baseline.comparison.baseline]


def test_a_drift_is_told_where_the_rounds_of_two_timings_lie_apart():
    baseline = Baseline()
    assert baseline.ms is None and baseline.drift_ms is None
    for ms, drift in ((5.0, None), (5.1, None), (6.0, (5.0, 6.0))):
        baseline.add(compared(ms))
        assert baseline.drift_ms == drift


def test_a_search_at_another_batch_or_machine_has_a_baseline_of_its_own():
    baseline = Baseline()
    baseline.add(compared(5.0))
    found = searched()
    assert baseline.stated(found).baseline_ms == 5.0
    for other in ({"batch": 16}, {"machine": "elsewhere"}):
        assert baseline.stated(found.model_copy(update=other)).baseline_ms == 6.2


def test_a_plan_of_formats_has_its_times_as_shares_of_the_one_baseline():
    baseline = Baseline()
    baseline.add(compared(5.0))
    stated = baseline.stated(planned())
    point, other = stated.everything
    assert stated.baseline_ms == 5.0 and stated.limits == {"latency_ms": 3.5, "loss": 0.1}
    assert (point.latency_ms, other.latency_ms) == (2.5, 5.0) and other.achieved is None
    assert (point.achieved.baseline_ms, point.achieved.latency_ms) == (5.0, 3.0)
    assert stated.chosen == 0 and baseline.stated(stated) is stated
    elsewhere = planned().model_copy(update={"machine": "elsewhere"})
    assert baseline.stated(elsewhere) is elsewhere


def planned():
    """A plan that was made while the model took 10 ms, with a point measured while it took 8."""
    done = Achieved(latency_ms=4.8, baseline_ms=8.0, size_bytes=10)
    known = {
        "machine": machine_label(),
        "limits": {"latency_ms": 7.0, "loss": 0.1},
        "baseline_ms": 10.0,
        "points": (point("int8", {"a": "int8"}, latency_ms=5.0, achieved=done),),
        "uniform": (point("fp32", {"a": "fp32"}, latency_ms=10.0),),
    }
    return changed("Allocation", workload="small", **known)


def searched():
    """What a search measured while the model took 6.2 and 7.7 ms."""
    rows = tuple(
        Candidate(
            label=label, steps=(step,), why="because", status="measured", rank=rank, word="faster",
            latency_ms=before / 2, before_ms=before, speedup=2.0, interval=(1.9, 2.1), tone="good",
            sentence=f"{before} → {before / 2} ms · 2.00 × faster · likely 1.90–2.10",
        )
        for rank, (label, step, before) in enumerate(
            [("Fold", FOLD, 6.2), ("Channels last", {"layout": {}}, 7.7)], 1
        )
    )  # fmt: skip
    return Candidates(
        workload="small", goal="latency", metric_drop=0.01, may_train=False, seconds=1, took_s=1,
        machine=machine_label(), planned=2, is_done=True, baseline_ms=6.2, rows=rows,
    )  # fmt: skip


@pytest.fixture
def drifting(monkeypatch):
    """Calls take 5 ms, and 3 ms with a step; the machine is slower whenever it is told so."""
    machine = {"slower": 1.0}

    def timed(candidate):
        candidate.call()
        ms = machine["slower"] * (5.0 if "baseline" in candidate.name else 3.0)
        return ms, ms

    monkeypatch.setattr(timing, "_timed", timed)
    monkeypatch.setattr("paifuser_lab.measure.MachineWatch.quality", lambda *_, **__: Quality())
    return machine


def test_every_latency_of_the_model_on_the_page_is_one_while_the_machine_drifts(drifting, tmp_path):
    with opened(lab.Workload(Small(), images(), name="small"), tmp_path) as bench:
        found_on(bench, 5.0)
        drifting["slower"] = 1.4
        bench.candidates = searched()
        found_on(bench, 5.0)
        bench.requests = [{"do": "apply_candidate", "label": "Fold", "id": 1}]
        bench.wait(TIMEOUT_S)
        assert bench.state["story"]["sentence"].startswith("5.00 → 3.00 ms")
        found_on(bench, 5.0)
        drifting["slower"] = 1.2
        bench.requests = [{"do": "choose", "step": {"layout": {}}, "id": 2}]
        bench.wait(TIMEOUT_S)
        found_on(bench, 6.0)  # the middle of 5, 7 and 6
        for number in (1, 0, 2):
            bench.requests = [{"do": "go_back", "number": number, "id": bench.served + 1}]
            assert bench.wait(TIMEOUT_S).results.current == number
            found_on(bench, 6.0)
        assert ["as it came it drifted", "from 5.00 to 7.00 ms"] in bench.state["quality"][
            "reasons"
        ]
        row = bench.views["results"]["rows"][0]
        assert "drifted from 5.00 to 7.00" in str(row)


def found_on(bench, ms):
    """Every latency of the unchanged model that the page has is `ms`; the others by their ratio."""
    compared = bench.comparison
    before = compared[compared.baseline]
    shown = [before.latency_ms, bench.results[0].latency_ms]
    shown += [row.before_ms for row in bench.results.rows if row.is_measured]
    shown += [bench.session.state.baseline.total_ms, bench.session.state.baseline.latency_ms]
    now = (current(compared) if len(bench.recipe) else before).latency_ms
    whole = numpy.frombuffer(bench.data["numbers"]["total_ms"], "<f4")[0]
    assert whole == pytest.approx(now)
    assert bench.profile.latency_ms == pytest.approx(now)
    assert sum(row.self_ms for row in bench.profile) == pytest.approx(now)
    for row in bench.results.rows:
        assert row.latency_ms == pytest.approx(ms / row.speedup)
    if bench.candidates:
        shown += [bench.candidates.baseline_ms, *(row.before_ms for row in bench.candidates.rows)]
        assert all(row.latency_ms == ms / row.speedup for row in bench.candidates.rows)
    assert shown == pytest.approx([ms] * len(shown))
    told = re.findall(r"([\d.]+) → [\d.]+ ms", repr((bench.state, bench.views, bench.detail)))
    assert set(told) <= {readable_ms(ms)}, told
