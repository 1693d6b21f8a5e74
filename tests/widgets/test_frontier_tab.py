"""The workbench's frontier and coupling: a plan of formats is computed, chosen from and measured; a
cut's predicted and measured effect is shown.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab import saliency
from paifuser_lab.errors import MeasureError, WorkloadError
from paifuser_lab.jobs import queries
from paifuser_lab.planner import achieved, plan_precision
from paifuser_lab.planner.precision import costs, latency
from paifuser_lab.records import LayerImportance, LayerSensitivity, Limit
from tests.support import drawn
from tests.support.bench import TIMEOUT_S, ask
from tests.support.models import Small, images

pytestmark = pytest.mark.usefixtures("as_it_was")


def point(name, layers, **more):
    steps = ({"precision": {"layers": layers}},) if layers else ()
    known = {"recipe_steps": steps, "loss": 0.1, "loss_error": 0.01, "size_bytes": 100}
    every = dict.fromkeys(("conv", "head"), "fp32") | layers
    return drawn.point(name, every, **known | more)


def allocation_of(**more):
    known = {
        "workload": "small",
        "unit": "output error",
        "limits": {"loss": 0.2},
        "baseline_bytes": 200,
        "points": (point("point 1", {"conv": "bf16"}), point("point 2", {}, loss=0.0)),
        "uniform": (point("all bf16", {"conv": "bf16", "head": "bf16"}),),
    }
    return drawn.changed("Allocation", **known | more)


def sensitivity_of(*, is_interrupted=False):
    rows = tuple(
        LayerSensitivity(layer=name, kind="Linear", parameters=1) for name in ("conv", "head")
    )
    known = {"unit": "output error", "formats": ("bf16",), "method": "output", "rows": rows}
    return drawn.changed("Sensitivity", workload="small", is_interrupted=is_interrupted, **known)


CONV = LayerImportance(
    layer="conv", kind="Conv2d", channels=8, values=tuple(map(float, range(1, 9)))
)
HEAD = LayerImportance(layer="head", kind="Linear", channels=5, values=(1.0,) * 5, is_answer=True)
IMPORTANCE = drawn.changed("Importance", workload="small", method="magnitude", rows=(CONV, HEAD))


@pytest.fixture
def plan(monkeypatch):
    """Replaces the planner by a stub; returns the list of the options of each call."""
    calls = []

    def make(work, **options):
        calls.append(options)
        return allocation_of()

    def make_shares(work, shares, **options):
        return [make(work, share=share, **options) for share in shares]

    monkeypatch.setattr(queries, "plan_precision", make)
    monkeypatch.setattr(queries, "plan_shares", make_shares)
    monkeypatch.setattr(saliency, "sensitivity", lambda work, **options: sensitivity_of())
    return calls


# The plan.


@pytest.mark.parametrize("limit", ["latency_ms", "size_bytes"])
def test_a_share_of_the_baseline_is_the_planner_s_budget(bench, plan, limit):
    ask(bench, do="allocation", limit=limit, value=0.5)
    state = bench.wait(TIMEOUT_S)
    assert (plan[0]["share"], plan[0]["of"]) == (0.5, limit) and state.error is None
    assert bench.allocation == allocation_of() and [
        point["name"] for point in bench.views["allocation"]["points"]
    ] == ["point 1", "point 2", "all bf16"]


def test_a_loss_is_passed_to_the_planner_with_a_sensitivity(bench, plan):
    seen = []
    end = bench.session.observe(lambda state: seen.append((state.status, state.total)))
    ask(bench, do="allocation", limit="loss", value=0.03)
    state = bench.wait(TIMEOUT_S)
    end()
    assert plan[0]["loss"] == 0.03 and plan[0]["sensitivity"] == sensitivity_of() == state.judged
    assert ("planning", 60) in seen and bench.sensitivity is None, (
        "the planner's sensitivity is not shown as the requested one"
    )


def test_a_stopped_plan_keeps_its_estimates_and_the_next_plan_resumes_from_them(
    bench, plan, monkeypatch
):
    resumed = []

    def estimate(work, *, resume, should_stop, **options):
        resumed.append(resume)
        if len(resumed) == 1:
            bench.session.stop()
        return sensitivity_of(is_interrupted=should_stop())

    monkeypatch.setattr(saliency, "sensitivity", estimate)
    bench.session.show("judged", None)
    ask(bench, do="allocation", limit="loss", value=0.1)
    state = bench.wait(TIMEOUT_S)
    assert "the estimates are kept" in state.error and state.judged.is_interrupted and not plan
    ask(bench, do="allocation", limit="loss", value=0.1)
    assert bench.wait(TIMEOUT_S).allocation == allocation_of() and resumed[1].is_interrupted


# Its points.


def test_an_empty_recipe_matches_no_point_although_all_its_layers_are_in_fp32(bench):
    bench.allocation = allocation_of()
    assert not bench.recipe.steps and not bench.allocation.points[1].recipe_steps
    assert bench.state["allocated"] is None
    ask(bench, do="allocate", point=0)
    assert bench.state["allocated"] == 0
    bench.session.undo()
    assert bench.state["allocated"] is None


def test_a_clicked_point_is_the_recipe_and_undo_withdraws_it(bench):
    bench.recipe = lab.Recipe(["fold", {"precision": {"layers": {"head": "fp16"}}}])
    bench.allocation = allocation_of()
    assert bench.state["allocated"] is None
    ask(bench, do="allocate", point=0)
    assert bench.recipe == lab.Recipe(["fold", {"precision": {"layers": {"conv": "bf16"}}}]), (
        "a plan replaces all older formats"
    )
    assert bench.state["allocated"] == 0
    bench.session.undo()
    assert (
        bench.recipe[1].options == {"layers": {"head": "fp16"}} and bench.state["allocated"] is None
    )
    ask(bench, do="allocate", point=1)
    assert bench.recipe == lab.Recipe(["fold"]) and bench.state["allocated"] == 1


@pytest.mark.parametrize("index", [0, 1, 2, 3])
def test_the_marked_point_is_the_one_that_was_asked_for(bench, index):
    both = {"conv": "bf16"}
    bench.allocation = allocation_of(
        points=(point("point 1", both), point("point 2", {})),
        uniform=(point("all fp32", {}), point("all bf16", both)),
    )
    ask(bench, do="allocate", point=index)
    assert bench.state["allocated"] == index, "also where another has the same formats"


@pytest.mark.parametrize("index", [0, 2])
def test_a_chosen_point_is_measured_and_shown_beside_its_prediction(bench, index):
    bench.allocation = allocation_of()
    ask(bench, do="allocate", point=index)
    state = bench.wait(TIMEOUT_S)
    assert state.error is None and bench.state["allocated"] == index
    measured = [point.achieved for point in bench.allocation.everything]
    assert [record is not None for record in measured] == [other == index for other in range(3)], (
        "only the chosen point is applied"
    )
    assert measured[index].latency_ms > 0 and measured[index].loss > 0, "bf16 is not exact"
    note = bench.views["allocation"]["picture"]["note"]
    assert note.startswith("latency: 1 point, too few")
    measured_plan = bench.allocation
    bench.session.query("achieved", place=index)
    assert bench.wait(TIMEOUT_S).allocation is measured_plan, (
        "a measured point is not measured again"
    )


def test_choosing_a_point_without_a_plan_is_reported(bench):
    ask(bench, do="allocate", point=0)
    assert "No formats have been planned yet" in bench.state["error"]


def test_a_fresh_plan_names_the_point_that_was_asked_for_before_one_is_chosen(bench):
    points = (
        point("point 1", {"conv": "bf16", "head": "bf16"}, loss=0.5, latency_ms=0.5),
        point("point 2", {"conv": "bf16"}, loss=0.15),
        point("point 3", {}, loss=0.0, latency_ms=2.0),
    )
    bench.session.show("asked_point", None)
    bench.allocation = allocation_of(points=points, chosen=1)
    asked = bench.views["allocation"]["best"]
    assert bench.state["allocated"] is None and len(bench.recipe) == 0
    within = [index for index in range(3) if points[index].loss <= 0.2]
    quickest = min(within, key=lambda index: points[index].latency_ms)
    assert asked == quickest, "the fastest within the limit"
    ask(bench, do="allocate", point=asked)
    bench.wait(TIMEOUT_S)
    assert bench.state["allocated"] == asked


# The planner, stopped.


@pytest.fixture
def saved_tables(monkeypatch):
    """Starts without rows of an earlier plan; returns the list of tables that would be saved."""
    saved = []
    monkeypatch.setattr(
        latency,
        "kept_table",
        lambda count: lab.records.LatencyTable(machine="m", threads=count, torch_version="2"),
    )
    monkeypatch.setattr(costs, "keep", saved.append)
    monkeypatch.setattr(costs, "MAX_EXCESS", math.inf)
    return saved


def work():
    torch.manual_seed(0)
    batches = [(images(4), torch.randint(0, 5, (4,))) for _ in range(2)]
    return lab.Workload(
        Small(), images(), name="small", loss=F.cross_entropy, train=batches, test=batches
    )


def test_a_plan_stopped_while_layers_are_timed_raises_and_keeps_the_timed_ones(
    saved_tables, monkeypatch
):
    timed = []
    real = latency._timed
    monkeypatch.setattr(latency, "_timed", lambda *args: timed.append(args) or real(*args))
    known = lab.sensitivity(work(), formats=("bf16",), batches=1)
    with pytest.raises(
        MeasureError,
        match="stopped before all layers were timed; the undisturbed timings are kept",
    ):
        plan_precision(
            work(),
            loss=1.0,
            sensitivity=known,
            formats=("fp32", "bf16"),
            seconds=0.2,
            should_stop=lambda: bool(timed),
        )
    assert (
        len(timed) == 1 and len({row.likeness for table in saved_tables for row in table.rows}) == 1
    )


def test_a_plan_stopped_after_timing_has_the_points_found_until_then(saved_tables, monkeypatch):
    known = lab.sensitivity(work(), formats=("bf16",), batches=1)
    seen = []
    monkeypatch.setattr(
        latency, "_timed", lambda *args, real=latency._timed: seen.append(1) or real(*args)
    )
    plan = plan_precision(
        work(),
        loss=1.0,
        sensitivity=known,
        formats=("fp32", "bf16"),
        seconds=0.2,
        should_stop=lambda: len(seen) > 1,
    )
    assert len(plan.points) >= 1 and any("or it was stopped" in note for note in plan.notes)


def test_single_uniform_choices_can_be_measured():
    plan = achieved(work(), allocation_of(unit="loss"), points=[], uniform=[0], seconds=0.1)
    assert [point.achieved is not None for point in plan.everything] == [False, False, True]
    with pytest.raises(WorkloadError, match="no uniform choice 1; there are 1"):
        achieved(work(), allocation_of(), points=[], uniform=[1])


# Coupling, and the effect of a cut.


def test_coupling_and_cut_cost_are_computed_after_the_importance(bench):
    bench.importance = IMPORTANCE
    state = bench.wait(TIMEOUT_S)
    sent = bench.views["coupling"]
    assert (
        sent["name"] == [group.name for group in state.coupling.groups]
        and "norm" in sent["layer"]["names"]
    )
    assert state.cut_cost.groups == state.coupling.groups
    assert state.cut_cost.latency_ms == state.baseline.latency_ms
    baseline = state.cut_cost.predict(state.cut_cost.full)
    assert baseline.parameters == sum(
        weight.numel() for weight in bench.session.work.model.parameters()
    )
    coupling = bench.coupling
    ask(bench, do="importance")
    assert bench.wait(TIMEOUT_S).coupling is coupling, "the unchanged model has the same coupling"


def test_unchanged_views_keep_their_stamp_when_views_are_sent_again(bench):
    bench.importance = IMPORTANCE
    bench.wait(TIMEOUT_S)
    before = {name: bench.views[name]["stamp"] for name in ("importance", "coupling")}
    bench.allocation = allocation_of()
    assert {name: bench.views[name]["stamp"] for name in before} == before
    bench.importance = IMPORTANCE.model_copy(update={"examples": 9})
    assert bench.views["importance"]["stamp"] not in before.values()


def test_a_cut_is_told_with_its_measured_effect(bench):
    bench.importance = IMPORTANCE
    bench.recipe = lab.Recipe([], limit=Limit(output_error=10.0))  # whatever is cut is kept
    ask(bench, do="prune", layer="conv", ratio=0.5, kept=4)
    state = bench.wait(TIMEOUT_S)
    rows = {row["name"]: row for row in bench.cut["rows"]}
    predicted = state.cut_cost.predict(state.cut_cost.widths({"conv": 0.5}))
    counted = sum(weight.numel() for weight in state.variant.module.parameters())
    assert counted == predicted.parameters
    for name in ("parameters", "FLOPs"):
        assert rows[name]["achieved"] == rows[name]["predicted"] and rows[name]["error"] == "0%"
    assert rows["latency"]["achieved"] and list(rows) == ["parameters", "FLOPs", "latency"]
    assert bench.cut["note"] == bench.cut["waiting"] == ""
    bench.recipe = bench.recipe.with_step("fold")
    assert "include the other step" in bench.cut["note"] and bench.cut["waiting"]


@pytest.mark.parametrize(
    "steps",
    [
        [{"prune": {"ratio": 0.5}}],
        [{"prune": {"layers": {"co*": 0.5}}}],
        [{"prune": {"layers": {"conv": 0.5}}}, {"prune": {"layers": {"conv": 0.5}}}],
    ],
    ids=["a ratio", "a pattern", "twice"],
)
def test_a_cut_by_its_own_rule_is_not_predicted(bench, steps):
    bench.importance = IMPORTANCE
    bench.wait(TIMEOUT_S)
    bench.recipe = lab.Recipe(steps)
    assert bench.cut["rows"] == [] and "by a rule of its own" in bench.cut["note"]
    bench.recipe = lab.Recipe([])
    assert bench.cut["rows"] and bench.cut["note"] == ""
