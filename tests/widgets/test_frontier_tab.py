"""The workbench's newer views: a plan of formats that is found, chosen from and proven; groups
before the cut, and what a cut gives.
"""

from __future__ import annotations

import math

import pytest
import torch
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab import saliency
from paifuser_lab.errors import MeasureError, WorkloadError
from paifuser_lab.planner import achieved, plan_precision
from paifuser_lab.planner.precision import costs, latency
from paifuser_lab.records import (
    Allocation,
    AllocationPoint,
    Importance,
    LayerImportance,
    LayerSensitivity,
    Sensitivity,
)
from paifuser_lab.session import queries
from tests.support.models import Small, images

PATIENCE = 120.0
pytestmark = pytest.mark.usefixtures("as_it_was")


def point(name, layers, **more):
    steps = ({"precision": {"layers": layers}},) if layers else ()
    known = {
        "around": "fp32",
        "loss": 0.1,
        "loss_error": 0.01,
        "latency_ms": 1.0,
        "size_bytes": 100,
        "recipe_steps": steps,
    }
    return AllocationPoint(
        name=name, formats=dict.fromkeys(("conv", "head"), "fp32") | layers, **known | more
    )


def planned(**more):
    known = {
        "workload": "small",
        "machine": "a machine",
        "threads": 1,
        "unit": "output error",
        "axis": "latency_ms",
        "limits": {"loss": 0.2},
        "baseline_ms": 2.0,
        "baseline_bytes": 200,
        "reason": "the best",
        "chosen": 0,
        "points": (point("point 1", {"conv": "bf16"}), point("point 2", {}, loss=0.0)),
        "uniform": (point("all bf16", {"conv": "bf16", "head": "bf16"}),),
    }
    return Allocation(**known | more)


def judged(*, is_interrupted=False):
    rows = tuple(
        LayerSensitivity(layer=name, kind="Linear", parameters=1) for name in ("conv", "head")
    )
    return Sensitivity(
        workload="small",
        machine="here",
        unit="output error",
        formats=("bf16",),
        method="output",
        examples=1,
        rows=rows,
        is_interrupted=is_interrupted,
    )


CONV = LayerImportance(
    layer="conv", kind="Conv2d", channels=8, values=tuple(map(float, range(1, 9)))
)
HEAD = LayerImportance(layer="head", kind="Linear", channels=5, values=(1.0,) * 5, is_answer=True)
WEIGHED = Importance(
    workload="small",
    machine="here",
    method="magnitude",
    unit="A sentence.",
    examples=8,
    rows=(CONV, HEAD),
)


def ask(bench, **request):
    bench.requests = [{**request, "id": bench.served + 1}]


@pytest.fixture
def plan(monkeypatch):
    """Plans without a clock; what each was asked for is noted."""
    asked = []

    def make(work, **options):
        asked.append(options)
        return planned()

    monkeypatch.setattr(queries, "plan_precision", make)
    monkeypatch.setattr(saliency, "sensitivity", lambda work, **options: judged())
    return asked


# The plan.


@pytest.mark.parametrize(
    ("limit", "field"), [("latency_ms", "latency_ms"), ("size_bytes", "size_bytes")]
)
def test_a_share_of_what_the_model_has_is_the_planner_s_budget(bench, plan, limit, field):
    ask(bench, do="allocation", limit=limit, value=0.5)
    state = bench.wait(PATIENCE)
    whole = getattr(state.comparison[state.comparison.baseline], field)
    assert {limit: plan[0][limit]} == {limit: pytest.approx(0.5 * whole)} and state.error is None
    assert bench.allocation == planned() and bench.views["allocation"]["name"] == [
        "point 1",
        "point 2",
        "all bf16",
    ]


def test_a_loss_is_the_planner_s_budget_as_it_is_and_the_layers_are_judged_for_it(bench, plan):
    seen = []
    end = bench.session.observe(lambda state: seen.append((state.status, state.total)))
    ask(bench, do="allocation", limit="loss", value=0.03)
    state = bench.wait(PATIENCE)
    end()
    assert plan[0]["loss"] == 0.03 and plan[0]["sensitivity"] == judged() == state.judged
    assert ("planning", 60) in seen and bench.sensitivity is None, (
        "what a plan was guided by is not what somebody looked for"
    )


@pytest.mark.parametrize(
    ("limit", "value", "sentence"),
    [
        ("loss", -1, "-1 is no budget"),
        ("loss", math.nan, "nan is no budget"),
        ("loss", "much", "'much' is no budget"),
        ("loss", True, "True is no budget"),
        ("weight", 1.0, "no budget of 'weight'; there are loss, latency_ms and size_bytes"),
    ],
)
def test_what_is_no_budget_is_told_in_place(bench, plan, limit, value, sentence):
    ask(bench, do="allocation", limit=limit, value=value)
    assert sentence in bench.state["error"] and not plan


def test_a_plan_that_cannot_be_is_told_in_a_sentence(bench, plan, monkeypatch):
    def refuse(work, **options):
        raise WorkloadError("latency_ms=1 cannot be kept.")

    monkeypatch.setattr(queries, "plan_precision", refuse)
    ask(bench, do="allocation", limit="loss", value=0.1)
    assert bench.wait(PATIENCE).error == "latency_ms=1 cannot be kept." and bench.allocation is None


def test_a_plan_that_is_stopped_keeps_what_was_judged_and_the_next_goes_on_from_there(
    bench, plan, monkeypatch
):
    resumed = []

    def judge(work, *, resume, should_stop, **options):
        resumed.append(resume)
        if len(resumed) == 1:
            bench.session.stop()
        return judged(is_interrupted=should_stop())

    monkeypatch.setattr(saliency, "sensitivity", judge)
    bench.session.show("judged", None)
    ask(bench, do="allocation", limit="loss", value=0.1)
    state = bench.wait(PATIENCE)
    assert "what was judged is kept" in state.error and state.judged.is_interrupted and not plan
    ask(bench, do="allocation", limit="loss", value=0.1)
    assert bench.wait(PATIENCE).allocation == planned() and resumed[1].is_interrupted


def test_what_is_stopped_before_it_has_anything_leaves_the_session_alive(bench, monkeypatch):
    def stop(work, **options):
        raise KeyboardInterrupt

    monkeypatch.setattr(saliency, "importance", stop)
    bench.session.query("importance")
    state = bench.wait(PATIENCE)
    assert (state.status, state.importance) == ("idle", None) and "interrupted" in state.error
    bench.recipe = lab.Recipe(["fold"])
    assert bench.wait(PATIENCE).variant.recipe == lab.Recipe(["fold"])


def test_a_query_that_is_not_there_is_refused(bench):
    with pytest.raises(
        lab.PaifuserError, match="has no query 'moon'; it has sensitivity, importance"
    ):
        bench.session.query("moon")


# Its points.


def test_an_empty_recipe_has_chosen_no_point_although_all_its_layers_are_in_fp32(bench):
    bench.allocation = planned()
    assert not bench.recipe.steps and not bench.allocation.points[1].recipe_steps
    assert bench.state["allocated"] is None
    ask(bench, do="allocate", point=0)
    assert bench.state["allocated"] == 0
    bench.session.undo()
    assert bench.state["allocated"] is None


def test_a_click_on_a_point_is_the_recipe_and_undo_takes_it_back(bench):
    bench.recipe = lab.Recipe(["fold", {"precision": {"layers": {"head": "fp16"}}}])
    bench.allocation = planned()
    assert bench.state["allocated"] is None
    ask(bench, do="allocate", point=0)
    assert bench.recipe == lab.Recipe(["fold", {"precision": {"layers": {"conv": "bf16"}}}]), (
        "a plan is whole: nothing older stays"
    )
    assert bench.state["allocated"] == 0
    bench.session.undo()
    assert (
        bench.recipe[1].options == {"layers": {"head": "fp16"}} and bench.state["allocated"] is None
    )
    ask(bench, do="allocate", point=1)
    assert bench.recipe == lab.Recipe(["fold"]) and bench.state["allocated"] == 1


@pytest.mark.parametrize("place", [0, 2])
def test_what_a_chosen_point_really_does_arrives_beside_what_was_predicted(bench, place):
    bench.allocation = planned()
    ask(bench, do="allocate", point=place)
    state = bench.wait(PATIENCE)
    assert state.error is None and bench.state["allocated"] == place
    did = [one.achieved for one in bench.allocation.everything]
    assert [one is not None for one in did] == [index == place for index in range(3)], (
        "only what was chosen is applied"
    )
    assert did[place].latency_ms > 0 and did[place].loss > 0, "bf16 is not exact"
    assert bench.views["allocation"]["remarks"][1].startswith("latency: 1 point, too few")
    proven = bench.allocation
    bench.session.query("achieved", place=place)
    assert bench.wait(PATIENCE).allocation is proven, "what is known is not measured again"


@pytest.mark.parametrize("place", [-1, 3, "0", True, None])
def test_a_point_that_there_is_not_is_told_in_place_and_nothing_changes(bench, place):
    bench.allocation = planned()
    ask(bench, do="allocate", point=place)
    assert (
        f"no point {place}; choose one of 0 to 2" in bench.state["error"] and len(bench.recipe) == 0
    )


def test_without_a_plan_there_is_nothing_to_choose(bench):
    ask(bench, do="allocate", point=0)
    assert "No formats have been planned yet" in bench.state["error"]


def test_a_plan_of_another_model_is_refused(bench):
    stranger = planned(points=(point("point 1", {"elsewhere": "bf16"}),))
    with pytest.raises(
        lab.PaifuserError,
        match="The allocation of small has a layer 'elsewhere' that small has not",
    ):
        bench.allocation = stranger
    assert bench.allocation is None


# The planner, stopped.


@pytest.fixture
def nothing_kept(monkeypatch):
    """No row of an earlier plan; what would be kept is noted."""
    kept = []
    monkeypatch.setattr(
        latency,
        "kept_table",
        lambda count: lab.records.LatencyTable(machine="m", threads=count, torch_version="2"),
    )
    monkeypatch.setattr(costs, "keep", kept.append)
    monkeypatch.setattr(costs, "DISTURBED", math.inf)
    return kept


def work():
    torch.manual_seed(0)
    batches = [(images(4), torch.randint(0, 5, (4,))) for _ in range(2)]
    return lab.Workload(
        Small(), images(), name="small", loss=F.cross_entropy, train=batches, test=batches
    )


def test_a_plan_that_is_stopped_while_layers_are_timed_says_so_and_keeps_those_that_were(
    nothing_kept, monkeypatch
):
    timed = []
    real = latency._timed
    monkeypatch.setattr(latency, "_timed", lambda *given: timed.append(given) or real(*given))
    known = lab.sensitivity(work(), formats=("bf16",), batches=1)
    with pytest.raises(
        MeasureError,
        match="stopped before all layers were timed; what was timed undisturbed is kept",
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
        len(timed) == 1 and len({row.likeness for table in nothing_kept for row in table.rows}) == 1
    )


def test_a_plan_that_is_stopped_once_all_is_timed_has_the_points_found_until_then(
    nothing_kept, monkeypatch
):
    known = lab.sensitivity(work(), formats=("bf16",), batches=1)
    seen = []
    monkeypatch.setattr(
        latency, "_timed", lambda *given, real=latency._timed: seen.append(1) or real(*given)
    )
    found = plan_precision(
        work(),
        loss=1.0,
        sensitivity=known,
        formats=("fp32", "bf16"),
        seconds=0.2,
        should_stop=lambda: len(seen) > 1,
    )
    assert len(found.points) >= 1 and any("or it was stopped" in note for note in found.notes)


def test_some_uniform_choices_can_be_proven_alone():
    found = achieved(work(), planned(unit="loss"), points=[], uniform=[0], seconds=0.1)
    assert [one.achieved is not None for one in found.everything] == [False, False, True]
    with pytest.raises(WorkloadError, match="no uniform choice 1; there are 1"):
        achieved(work(), planned(), points=[], uniform=[1])


# Groups, and what a cut gives.


def test_groups_are_found_beside_the_importance_and_sent_with_what_fewer_channels_cost(bench):
    bench.importance = WEIGHED
    state = bench.wait(PATIENCE)
    sent = bench.views["coupling"]
    assert (
        sent["name"] == [group.name for group in state.coupling.groups]
        and "norm" in sent["layer"]["names"]
    )
    assert (
        state.cut_cost.groups == state.coupling.groups
        and sent["cost"]["latency_ms"] == state.baseline.latency_ms
    )
    whole = state.cut_cost.predict(state.cut_cost.full)
    assert whole.parameters == sum(
        weight.numel() for weight in bench.session.work.model.parameters()
    )
    found = bench.coupling
    ask(bench, do="importance")
    assert bench.wait(PATIENCE).coupling is found, "the model as it is stays as it is"


def test_what_was_sent_before_keeps_its_number_when_views_are_sent_anew(bench):
    bench.importance = WEIGHED
    bench.wait(PATIENCE)
    before = {name: bench.views[name]["stamp"] for name in ("importance", "coupling")}
    bench.allocation = planned()
    assert {name: bench.views[name]["stamp"] for name in before} == before
    bench.importance = WEIGHED.model_copy(update={"examples": 9})
    assert bench.views["importance"]["stamp"] not in before.values()


def test_a_cut_is_told_in_the_order_in_which_it_counts_and_what_it_did_beside(bench):
    bench.importance = WEIGHED
    ask(bench, do="prune", layer="conv", ratio=0.5, kept=4)
    state = bench.wait(PATIENCE)
    cut = bench.state["cut"]
    assert cut["removed"] == [["conv", 0.5]] and cut["is_foretold"] and cut["others"] == 0
    foretold = state.cut_cost.predict(state.cut_cost.widths({"conv": 0.5}))
    counted = sum(weight.numel() for weight in state.variant.module.parameters())
    assert cut["achieved"]["now"]["parameters"] == counted == foretold.parameters
    assert cut["achieved"]["now"]["flops"] == foretold.flops < cut["achieved"]["before"]["flops"]
    assert cut["achieved"]["now"]["latency_ms"] > 0 and cut["achieved"]["now"]["metric"] is None
    bench.recipe = bench.recipe.with_step("fold")
    assert bench.state["cut"]["others"] == 1


@pytest.mark.parametrize(
    "steps",
    [
        [{"prune": {"ratio": 0.5}}],
        [{"prune": {"layers": {"co*": 0.5}}}],
        [{"prune": {"layers": {"conv": 0.5}}}, {"prune": {"layers": {"conv": 0.5}}}],
    ],
    ids=["a ratio", "a pattern", "twice"],
)
def test_nothing_is_foretold_of_a_cut_by_a_rule_of_its_own(bench, steps):
    bench.recipe = lab.Recipe(steps)
    assert not bench.state["cut"]["is_foretold"] and bench.state["cut"]["achieved"] is None
    bench.recipe = lab.Recipe([])
    assert bench.state["cut"] == {"removed": [], "is_foretold": True, "others": 0, "achieved": None}
