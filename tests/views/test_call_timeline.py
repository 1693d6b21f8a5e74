"""One call along time: what a profile keeps of its traced call, and how it is drawn."""

from __future__ import annotations

import json

import pytest
import torch
from torch import nn

import paifuser_lab as lab
from paifuser_lab.profiler import call_timeline as recorded
from paifuser_lab.profiler.observation import Observation
from paifuser_lab.profiler.recording import MARK, MEMORY, Event
from paifuser_lab.records import CallTimeline, Record
from paifuser_lab.records.memory import OTHERS
from paifuser_lab.views import canvas
from paifuser_lab.views.call_timeline import ROW, picture
from paifuser_lab.views.picture import Boxes, Panel, Picture
from tests.support.drawn import HARDWARE, PROFILE, TIMELINE

MS = 1_000_000  # nanoseconds


class Net(nn.Module):
    def __init__(self):
        super().__init__()
        self.body = nn.Sequential(nn.Linear(8, 8), nn.ReLU())
        self.head = nn.Linear(8, 2)

    def forward(self, x):
        return self.head(self.body(x) + 1)


@pytest.fixture(scope="module")
def profile():
    return lab.profile(lab.Workload(Net(), torch.randn(2, 8), name="net"), runs=1, threads=1)


def timeline_of(events):
    observation = Observation(lab.Workload(Net(), torch.randn(2, 8), name="net"), 1, HARDWARE)
    observation.plain_ms = [3.0]
    return recorded.call_timeline(observation, events)


def boxes_of(panel: Panel) -> Boxes:
    return next(mark for mark in panel.marks if isinstance(mark, Boxes))


def test_a_profile_keeps_its_traced_call_in_the_order_of_time(profile):
    frame = profile.timeline.frame
    calls = frame[frame.operator == ""]
    assert list(calls.layer) == ["body", "body.0", "body.1", "head"]
    assert frame.start_ms.is_monotonic_increasing and set(frame.lane) == {"thread 1"}
    ran = [(row.layer, row.operator) for row in frame.itertuples()]
    order = [("body.0", "aten::linear"), ("body.1", "aten::relu"), ("", "aten::add"),
             ("head", "aten::linear")]  # fmt: skip
    assert [one for one in ran if one in order] == order
    for call in calls.itertuples():
        own = frame[(frame.layer == call.layer) & (frame.operator != "")]
        assert (own.start_ms >= call.start_ms).all() and (own.end_ms <= call.end_ms).all()
    assert 0 < profile.timeline.operators_ms < profile.timeline.duration_ms
    assert profile.timeline.latency_ms == profile.latency_ms
    assert not any(MEMORY in name or MARK in name for name in profile.timeline.operators)


def test_a_file_of_an_earlier_version_loads_and_its_timeline_says_what_to_do(profile, tmp_path):
    path = profile.save(tmp_path / "new.json")
    assert Record.load(path).timeline == profile.timeline
    content = json.loads(path.read_text())
    del content["data"]["timeline"]
    path.write_text(json.dumps(content))
    empty = lab.Profile.load(path).timeline
    assert not len(empty) and "Profile the model again" in empty.sentence
    assert lab.figure(empty).png() and not picture(empty).rows and str(empty)


def test_a_profile_at_another_latency_keeps_the_call_as_it_was_traced():
    known = PROFILE.model_copy(update={"timeline": TIMELINE})
    assert known.taking(100.0).timeline == TIMELINE


def test_kernels_stand_in_the_lane_of_their_stream_at_the_layer_that_started_them():
    events = [
        Event(MARK, 0, 9 * MS, thread=8),
        Event(MARK + "head", MS, 4 * MS, thread=8),
        Event("aten::addmm", 2 * MS, 3 * MS, thread=8, number=1),
        Event("aten::copy_", 2 * MS + 9, 3 * MS, thread=8),
        Event("aten::mul", 2 * MS, 2 * MS + 5, thread=3),
        Event("gemm", 5 * MS, 11 * MS, link=1, is_device=True, stream="device 0, stream 7"),
        Event(MARK + "head", 5 * MS, 11 * MS, is_device=True, stream="device 0, stream 7"),
        Event(MEMORY, 2 * MS, 2 * MS, nbytes=5, thread=8),
    ]
    rows = [tuple(row)[:3] for row in timeline_of(events).frame.itertuples(index=False)]
    assert rows == [
        ("thread 1", "head", ""),
        ("thread 1", "head", "aten::addmm"),
        ("thread 2", "", "aten::mul"),
        ("thread 1", "head", "aten::copy_"),
        ("device 0, stream 7", "head", "gemm"),
    ]
    timeline = timeline_of(events)
    assert (timeline.duration_ms, timeline.operators_ms, timeline.latency_ms) == (11, 1, 3)
    assert timeline.start_ms == (1, 2, 2, 2, 5) and timeline.sentence.startswith("91% of the call")
    lanes = picture(timeline).panels[0].y.names
    assert lanes == ("thread 1: layers", "thread 1: operators", "", "thread 2: operators",
                     "device 0, stream 7: operators")  # fmt: skip


def test_of_very_many_events_the_longest_are_kept_and_the_others_are_counted(monkeypatch):
    monkeypatch.setattr(recorded, "MOST_EVENTS", 3)
    lengths = [5, 1, 4, 2, 3]
    events = [Event(MARK, 0, 100 * MS)] + [
        Event(f"op {length}", 10 * place * MS, (10 * place + length) * MS)
        for place, length in enumerate(lengths)
    ]
    timeline = timeline_of(events)
    assert [timeline.operators[index] for index in timeline.operator_index] == [
        "op 5", "op 4", "op 3"
    ]  # fmt: skip
    assert timeline.left_out == 2 and timeline.operators_ms == sum(lengths)
    assert timeline.remarks[0].endswith("untraced it takes 3 ms; 2 shorter events left out")


def test_nothing_in_a_row_hides_another_and_what_is_inside_lies_below():
    (panel, _), boxes = picture(TIMELINE).panels, boxes_of(picture(TIMELINE).panels[0])
    spans = {}
    for x, x2, y in zip(boxes.x, boxes.x2, boxes.y, strict=True):
        assert x >= spans.get(y, 0), "a row's boxes come one after another"
        spans[y] = x2
    assert list(panel.y.names) == [
        "thread 1: layers", "", "thread 1: operators", "device 0, stream 7: operators"
    ]  # fmt: skip
    assert "aten::empty" not in boxes.tips.line, "too short for a row of its own"
    assert panel.height > ROW * len(panel.y.names)


def test_layer_and_operator_stand_in_the_tip_and_a_click_selects_the_layer():
    boxes = boxes_of(picture(TIMELINE).panels[0])
    assert list(boxes.key) == ["body", "body.conv", "body.conv", "", "body.conv", "head", "head"]
    assert boxes.tips.text(2) == "body.conv\naten::conv2d\n3 ms\n0.5 ms into the call\nthread 1"
    assert boxes.tips.text(3).startswith("the model itself\naten::relu")
    assert boxes.tips.text(0).startswith("body\nthe whole call of the layer\n4 ms\n0 ms")


def test_a_selected_layer_is_shown_alone_with_its_short_events_and_the_costliest_is_first():
    drawn = picture(TIMELINE)
    zooms = dict(drawn.by_layer)
    assert list(zooms) == ["body.conv", "body", "head"] and drawn.choice
    (panel,) = zooms["body.conv"].panels
    boxes = boxes_of(panel)
    assert panel.x.label == "ms into body.conv" and boxes.x[0] == 0
    assert panel.x.high == pytest.approx(9 - 0.1), "up to the end of its kernel"
    assert boxes.tips.line[1:] == ["aten::conv2d", "aten::empty", "a kernel"]
    assert boxes.tips.text(1).splitlines()[3] == "0.5 ms into the call"
    assert zooms["head"].sentence == "2 ms in 1 call"
    assert TIMELINE.within("") is TIMELINE and len(TIMELINE.within("bod")) == 0


def test_groups_of_layers_have_tones_and_small_branches_share_one():
    drawn = picture(TIMELINE)
    assert dict(drawn.legend) == {"group-0": "body", "group-1": "body.conv",
                                  "group-2": "the model itself", "group-3": "head"}  # fmt: skip
    short = TIMELINE.model_copy(update={"end_ms": (*TIMELINE.end_ms[:7], 7.501)})
    assert dict(picture(short).legend)["group-6"] == OTHERS
    assert boxes_of(picture(short).panels[0]).tone[-1] == "group-6"


def test_names_stand_where_they_fit_and_the_last_part_where_only_that_does():
    longer = "a_body_with_a_name_that_is_as_long_as_half_of_the_panel.conv1"
    update = {"layers": (longer, "body.conv", "", "head"), "lanes": ("thread 1", "thread 2")}
    labels = picture(TIMELINE.model_copy(update=update)).panels[0].marks[1]
    assert labels.texts[:3] == ["conv1", "body.conv", "conv2d"]
    assert "relu" in labels.texts and "a_body" not in "".join(labels.texts)


def test_a_thin_box_is_drawn_without_the_edge_that_would_cover_it():
    thin = Boxes([0, 50], [40, 50.1], [0, 0], [1, 1])
    x, y = picture(TIMELINE).panels[0].x, picture(TIMELINE).panels[0].y
    one = Picture("", "", ((Panel(x.linear(0, 100), y.linear(0, 1), (thin,)),),))
    wide, narrow = canvas.draw(one).axes[0].patches
    assert wide.get_linewidth() > narrow.get_linewidth() == 0


def test_the_table_has_the_longest_operators_in_order():
    rows = TIMELINE.table()
    assert [row["operator"] for row in rows] == [
        "aten::conv2d", "aten::empty", "aten::relu", "a kernel", "aten::relu"
    ]  # fmt: skip
    assert rows[2]["layer"] == "net" and (rows[0]["start ms"], rows[0]["ms"]) == ("0.500", "3.000")
    assert CallTimeline().title and repr(TIMELINE).startswith("CallTimeline(net on a machine")
