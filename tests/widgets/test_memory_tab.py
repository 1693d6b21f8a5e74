"""The workbench's memory: does it fit into a limit, how its buffers pack, and the switches of the
steps that keep memory or use it again; the views of the same records alone.
"""

from __future__ import annotations

import numpy
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import MeasureError
from paifuser_lab.memory.planning import plan_memory
from paifuser_lab.memory.pools import heap_obstacle
from paifuser_lab.memory.snapshots import memory_snapshot
from paifuser_lab.records import MemoryPoolUse, PoolCalls, readable_bytes
from paifuser_lab.session.state import State
from paifuser_lab.views import memory_snapshot as memory_snapshot_view
from paifuser_lab.views.memory_fit import picture_of_pool
from paifuser_lab.widgets.section import of_recipe, packed
from paifuser_lab.widgets.tabs import memory_pool as pool_tab
from paifuser_lab.widgets.tabs.memory_fit import limit_of, packed_fit
from paifuser_lab.widgets.tabs.memory_pool import effects, with_switch
from paifuser_lab.widgets.wire import pictured
from tests.support.bench import TIMEOUT_S, emptied, opened, send
from tests.support.drawn import RECORDS
from tests.support.snapshots import dump, recorded

HTML_NAME = "<img src=x onerror=alert(1)>"
pytestmark = pytest.mark.usefixtures("one_thread")


def model():
    """The activation's own buffer makes the peak, and running it in place lowers it."""
    stack = nn.Sequential()
    stack.add_module(HTML_NAME, nn.Linear(10, 1000))
    stack.add_module("act", nn.ReLU())
    stack.add_module("head", nn.Linear(1000, 10))
    return stack.eval()


def workload():
    return lab.Workload(model(), torch.randn(100, 10), name="net")


@pytest.fixture(scope="module")
def shared(tmp_path_factory):
    with opened(workload(), tmp_path_factory.mktemp("memory")) as bench:
        yield bench


@pytest.fixture
def bench(shared):
    return emptied(shared)


# The limit.


def held_of(fit, column="held"):
    return {row["category"]: row[column] for row in fit["picture"]["tables"][-1]["rows"]}


def steps_of(fit):
    """The requests of the rows that a press adds to the recipe."""
    rows = fit["picture"]["tables"][0]["rows"]
    return {row["change"]: row[""]["ask"] for row in rows if row.get("")}


def test_a_limit_is_answered_for_a_call_and_for_training_by_recipe(bench):
    state = send(bench, do="memory_fit", train=False, limit="1 MB")
    assert state.error is None
    view = bench.views["memory_fit"]
    assert view["training"] is None and view["call"]["limit_bytes"] == 10**6
    assert "batch 100" in view["call"]["picture"]["title"]
    assert held_of(view["call"])["weights"] == "84 kB"
    state = send(bench, do="memory_fit", train=True, limit=None)
    assert state.error is None
    both = bench.views["memory_fit"]
    assert both["call"] == view["call"] and held_of(view["call"])["gradients"] == "0 B"
    assert held_of(both["training"])["gradients"] != "0 B"
    bench.recipe = lab.Recipe([{"precision": {"default": "bf16"}}], workload="net")
    bench.wait(TIMEOUT_S)
    assert "memory_fit" not in bench.views, "it is not known of this recipe"
    send(bench, do="undo")
    assert bench.views["memory_fit"]["call"] == view["call"]


def test_remedies_that_are_steps_are_applied_by_one_press_and_lower_the_peak(bench):
    send(bench, do="memory_fit", train=False, limit="10 MB")
    before = bench.views["memory_fit"]["call"]
    steps, priced = steps_of(before), dict(before["remedies"])
    assert set(steps) == {"bf16", "memory reused"}
    assert all(priced[name] < before["peak_bytes"] for name in steps)
    for name, request in steps.items():
        state = send(bench, **request)
        assert state.error is None
        assert [step.kind for step in bench.recipe] == list(request["step"])
        send(bench, do="memory_fit", train=False, limit="10 MB")
        peak = bench.views["memory_fit"]["call"]["peak_bytes"]
        assert peak == pytest.approx(priced[name], rel=0.02)  # its inputs stay in fp32
        send(bench, do="undo")
    send(bench, do="memory_fit", train=True, limit="10 MB")
    training = bench.views["memory_fit"]["training"]
    assert training["remedies"] and not steps_of(training)


def test_steps_can_be_added_below_a_smaller_batch_that_is_none():
    call = packed_fit(lab.fits(workload(), limit="500 kB"))["call"]
    rows = call["picture"]["tables"][0]["rows"]
    assert rows[0]["change"].startswith("a batch of") and rows[0][""] == ""
    assert set(steps_of(call)) == {"bf16"}


def test_measured_bytes_stand_beside_the_predicted_ones(bench):
    send(bench, do="memory_fit", train=False, limit=None)
    send(bench, do="memory")
    call, timeline = bench.views["memory_fit"]["call"], of_recipe(bench.session.state, "memory")
    held, measured = held_of(call), held_of(call, "measured")
    assert measured["weights"] == held["weights"] and measured["activations"] != "0 B"
    assert call["picture"]["rows"][0][0]["y"]["names"][:2] == ["measured", "predicted"]
    inputs = bench.state["inputs_bytes"]
    assert inputs == 100 * 10 * 4 and held["inputs"] == measured["inputs"] == readable_bytes(inputs)
    whole = timeline.peak_bytes + timeline.total_weights_bytes + inputs
    assert abs(call["peak_bytes"] / whole - 1) < 0.1


@pytest.mark.parametrize("limit", ["much", "8 XB", -1, 0, True, 1.5, [], {}])
def test_a_limit_that_is_no_size_is_one_sentence_and_changes_nothing(bench, limit):
    known = bench.views.get("memory_fit")
    state = send(bench, do="memory_fit", train=False, limit=limit)
    assert state.error.count("memory limit of") == 1 and bench.views.get("memory_fit") == known
    with pytest.raises(MeasureError):
        limit_of({"limit": limit})


def test_a_limit_is_read_as_text_and_may_be_left_out():
    assert limit_of({"limit": "8 GB"}) == 8 * 10**9 and limit_of({}) is None


def test_a_fit_alone_has_its_own_panel_and_its_figure():
    for train, place in ((False, "call"), (True, "training")):
        fit = lab.fits(workload(), train=train, limit="2 MB")
        panel = lab.show(fit)
        assert panel.view == "memory_fit" and panel.data[place]["picture"]["title"] == fit.title
        assert sum(panel.data[key] is not None for key in ("call", "training")) == 1
        panel.close()


def test_what_is_not_known_is_packed_as_nothing():
    assert packed_fit(None, None, None)["call"] is None


# Packing.


def test_the_buffers_are_packed_for_the_current_recipe(bench):
    state = send(bench, do="memory_plan")
    assert state.error is None
    first = bench.views["memory_plan"]
    assert first["sentence"] and HTML_NAME in str(first["rows"])
    send(bench, do="choose", step={"reuse": {}})
    assert "memory_plan" not in bench.views
    send(bench, do="memory_plan")
    assert bench.views["memory_plan"]["title"] != first["title"]


def test_a_plan_is_packed_as_a_picture():
    plan = plan_memory(workload())
    data = packed(plan)
    boxes = data["rows"][0][0]["marks"][0]
    places = [boxes[name]["column"] for name in ("x", "y2")]
    begins, tops = (numpy.frombuffer(data["columns"][place], "<f4") for place in places)
    assert begins.tolist() == sorted(buffer.begin for buffer in plan.buffers)
    assert tops.max() == numpy.float32(plan.packed_bytes)


# Pools and reuse.

kinds = st.sampled_from(["pool", "reuse"])
others = st.lists(st.sampled_from(["fold", "layout", "pool", "reuse"]), unique=True)


@given(others, kinds)
def test_a_switch_off_takes_back_what_the_switch_on_added(before, kind):
    recipe = lab.Recipe([])
    for step in before:
        recipe = recipe if step == kind else recipe.with_step(step)
    on = with_switch(recipe, kind, is_on=True)
    assert sorted(step.kind for step in on) == sorted([kind, *(step.kind for step in recipe)])
    assert with_switch(on, kind, is_on=True) == on
    assert with_switch(on, kind, is_on=False) == recipe


def test_a_switch_on_keeps_the_limit_of_a_pool_that_the_recipe_has():
    recipe = lab.Recipe([{"pool": {"limit": "2 GB"}}])
    assert with_switch(recipe, "pool", is_on=True) == recipe


@pytest.mark.skipif(bool(heap_obstacle()), reason=heap_obstacle())
def test_the_switch_of_the_pool_adds_the_step_and_says_whether_it_helped(bench):
    assert bench.state["memory_steps"]["pool"] == {"is_on": False, "obstacle": "", "notes": []}
    state = send(bench, do="memory_step", kind="pool", is_on=True)
    assert state.error is None and [step.kind for step in bench.recipe] == ["pool"]
    shown = bench.state["memory_steps"]["pool"]
    assert shown["is_on"] and shown["notes"][0].startswith("in force during each call")
    (measured,) = [note for note in shown["notes"] if note.startswith("the memory pool ")]
    assert measured in state.comparison.rows[-1].notes and "page faults a call" in measured
    send(bench, do="undo")
    assert not len(bench.recipe) and not bench.state["memory_steps"]["pool"]["is_on"]


def test_the_switch_of_reuse_shows_what_runs_in_place(bench):
    state = send(bench, do="memory_step", kind="reuse", is_on=True)
    assert state.error is None
    shown = bench.state["memory_steps"]["reuse"]
    assert shown["is_on"] and shown["notes"][0].startswith("1 of 1 activation in place")
    send(bench, do="memory_step", kind="reuse", is_on=False)
    assert not len(bench.recipe) and bench.state["memory_steps"]["reuse"]["notes"] == []


def test_where_there_is_no_pool_the_switch_says_why(bench, monkeypatch):
    monkeypatch.setattr(pool_tab, "heap_obstacle", lambda: "the C library is another one")
    bench.session.set_error(None)
    assert bench.state["memory_steps"]["pool"]["obstacle"] == "the C library is another one"
    assert bench.state["memory_steps"]["reuse"]["obstacle"] == ""


def test_a_step_that_is_not_applied_yet_has_no_effects():
    assert effects(State(lab.Recipe(["reuse"])), "reuse") == []


@pytest.mark.skipif(bool(heap_obstacle()), reason=heap_obstacle())
def test_what_a_pool_spares_is_the_same_question_with_the_step_and_without(bench):
    assert send(bench, do="memory_pool").error is None
    counted = bench.views["memory_pool"]
    assert counted["rows"] and counted["tables"][0]["rows"][0]["now"]
    send(bench, do="memory_step", kind="pool", is_on=True)
    assert bench.views["memory_pool"]["title"] == counted["title"]
    send(bench, do="memory_step", kind="reuse", is_on=True)
    assert "memory_pool" not in bench.views


CALLS = PoolCalls(
    workload=HTML_NAME,
    machine="a machine",
    calls=5,
    faults_without=1200.0,
    faults_with=3.0,
    use=MemoryPoolUse(device="cpu", held_bytes=10, kept_bytes=2_000_000, is_in_force=True),
)


def test_page_faults_are_bars_as_long_as_their_counts_and_none_where_nobody_counts():
    bars, labels = picture_of_pool(CALLS).panels[0].marks
    assert list(bars.x2) == [1200.0, 3.0] and labels.texts == ["1,200", "3"]
    uncounted = CALLS.model_copy(update={"faults_without": None, "faults_with": None})
    assert picture_of_pool(uncounted).panels == ()


def test_the_sentence_of_a_pool_says_what_it_spares_and_what_it_does_not():
    assert "1,200 pages without the pool and 3 with it: the pool spares" in CALLS.sentence
    idle = CALLS.model_copy(update={"faults_without": 3.0})
    assert "spares nothing" in idle.sentence
    unknown = CALLS.model_copy(update={"faults_with": None})
    assert unknown.sentence == "This system does not count page faults."
    assert [row["memory"] for row in unknown.table()][:2] == ["page faults of a call without it",
                                                              "held"]  # fmt: skip


# A snapshot.


def test_a_snapshot_is_shown_with_its_timeline_its_segments_and_its_tables(tmp_path):
    path = dump(recorded(3, steps=150).snapshot(), tmp_path / "run.pickle")
    snapshot = memory_snapshot(path, replay=True)
    panel = lab.show(snapshot)
    assert panel.view == "memory_snapshot"
    shown, moment = memory_snapshot_view.picture(snapshot), snapshot.maps[0]
    assert panel.data == pictured(shown)
    *areas, reserved, _ = shown.panels[0].marks
    at = [snapshot.time_ms.index(time) for time in shown.cursor.at]
    whole = [sum(column[index] for column in snapshot.held_bytes) for index in at]
    assert list(areas[-1].high) == whole, "the categories stand on each other"
    assert list(reserved.y) == [snapshot.reserved_bytes[index] for index in at]
    assert shown.cursor.at[shown.cursor.start] == snapshot.peak_ms
    outlines, blocks = shown.below[0].panels[0].marks
    sizes = [end - start for start, end in zip(blocks.x, blocks.x2, strict=True)]
    assert sorted(sizes) == sorted(moment.block_bytes)
    assert sorted(blocks.tips.heading) == sorted(moment.sites[site] for site in moment.block_site)
    assert list(outlines.x2) == sorted(moment.segment_bytes, reverse=True)
    tables = [table.rows for table in shown.tables]
    assert tables == [snapshot.layer_table(), snapshot.table(), snapshot.replay.table()]
    panel.close()


def test_a_snapshot_of_a_run_on_a_cpu_has_nothing_reserved():
    snapshot = memory_snapshot(lab.Workload(nn.Linear(3, 3), torch.randn(2, 3)))
    shown = memory_snapshot_view.picture(snapshot)
    assert shown.cursor.at and not shown.cursor.tips.line
    assert "reserved" not in [name for _, name in shown.legend]
    assert shown.tables[0].rows[0]["category"] == "weights"


def test_a_moment_past_a_second_is_written_without_an_exponent():
    times = {"time_ms": (0.0, 1234.5, 2000.0), "peak_ms": 1234.5}
    shown = memory_snapshot_view.picture(RECORDS["MemorySnapshot"].model_copy(update=times))
    assert shown.cursor.tips.heading[shown.cursor.start] == "12 B allocated at 1230 ms"


def test_where_memory_ran_out_is_marked_with_what_would_have_helped(tmp_path):
    recorder = recorded(1, steps=200, limit_bytes=60 << 20)
    snapshot = memory_snapshot(dump(recorder.snapshot(), tmp_path / "run.pickle"))
    ended = snapshot.out_of_memory
    assert ended is not None
    shown = memory_snapshot_view.picture(snapshot)
    refused = shown.panels[0].marks[-1]
    assert (refused.at, refused.tone) == ([ended.time_ms], "bad")
    assert refused.names == [f"{readable_bytes(ended.requested_bytes)} refused"]
    assert shown.tables[-1].captions == (ended.sentence,)
    assert shown.tables[-1].rows == ended.table()
