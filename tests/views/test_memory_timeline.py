"""The memory timeline: its peak equals measure.peak_bytes, each byte has its layer, and the page
gets the same data.
"""

from __future__ import annotations

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab import profiler
from paifuser_lab.errors import ForwardError
from paifuser_lab.measure import peak_bytes
from paifuser_lab.records.memory import MAX_GROUPS, OTHERS, layer_groups
from paifuser_lab.views.memory import Place, picture, shares, squarified
from paifuser_lab.views.picture import Area
from paifuser_lab.views.style import CATEGORIES
from paifuser_lab.workload import running
from tests.support.models import Mapped, Small, Tied, ids, images, unchecked

FLOAT_BYTES = 4


class Stepwise(nn.Module):
    """Allocates 4 kB, then 8 kB, frees the first and returns half of the second."""

    def __init__(self) -> None:
        super().__init__()
        self.wide = Widened()

    def forward(self, x):
        first = x.clone()
        second = self.wide(first)
        del first
        return second[:1000].clone()


class Widened(nn.Module):
    def forward(self, x):
        return torch.cat([x, x])


def stepwise():
    return profiler.memory_timeline(lab.Workload(Stepwise(), torch.zeros(1000), name="steps"))


@pytest.mark.parametrize(
    "name", [name for name in lab.models() if name.endswith("-tiny") and "digits" not in name]
)
def test_the_peak_equals_that_of_measure(name):
    work = lab.load(name)
    timeline = profiler.memory_timeline(work)
    with running(work.model):
        inputs = work.inputs.clone()
        assert timeline.peak_bytes == peak_bytes(lambda: inputs(work.model), work.device) > 0
    assert (
        sum(row.held_bytes for row in timeline.at_peak)
        == timeline.peak_bytes + timeline.total_weights_bytes
    )
    state = {
        id(tensor): tensor.nbytes for tensor in (*work.model.parameters(), *work.model.buffers())
    }
    assert timeline.total_weights_bytes == sum(state.values())
    assert (
        min(timeline.alive_bytes) >= 0
        and list(timeline.time_ms) == sorted(timeline.time_ms)
        and timeline.time_ms[-1] <= timeline.duration_ms
    )


def test_each_allocation_has_its_layer_and_lifetime():
    timeline = stepwise()
    assert timeline.layers == ("", "wide")
    changes = [
        (timeline.layers[index], change)
        for index, change in zip(timeline.layer_index, timeline.change_bytes, strict=True)
    ]
    assert changes == [("", 4000), ("wide", 8000), ("", -4000), ("", 4000), ("wide", -8000)]
    assert timeline.alive_bytes == (4000, 12000, 8000, 12000, 4000) and timeline.peak_event == 1
    assert [(row.layer, row.kind, row.held_bytes) for row in timeline.at_peak] == [
        ("wide", "activations", 8000),
        ("", "activations", 4000),
    ]
    assert "8 kB (67%)" in timeline.sentence and "activations of wide" in timeline.sentence


def test_memory_that_an_operator_frees_before_it_ends_is_its_workspace():
    timeline = profiler.memory_timeline(
        lab.Workload(nn.Sequential(nn.BatchNorm2d(8), nn.ReLU()), torch.randn(1, 8, 4, 4))
    )
    held = [row for event in range(len(timeline.time_ms)) for row in timeline.held_at(event)]
    assert {(row.layer, row.kind) for row in held} >= {
        ("0", "workspace"),
        ("0", "activations"),
        ("1", "activations"),
        ("0", "weights"),
    }
    assert not [row for row in held if row.kind == "workspace" and row.layer == "1"]
    statistics = 2 * 8 * FLOAT_BYTES
    assert max(row.held_bytes for row in held if row.kind == "workspace") == statistics


def test_weights_that_are_tied_are_counted_once():
    model = Tied()
    timeline = profiler.memory_timeline(lab.Workload(model, ids()))
    weights = dict(zip(timeline.layers, timeline.weights_bytes, strict=True))
    assert weights["table"] == 7 * 4 * FLOAT_BYTES and weights.get("head", 0) == 0


def test_a_variant_has_a_timeline_too():
    work = lab.Workload(Small(), images(), name="small")
    folded = profiler.memory_timeline(lab.apply(work, lab.Recipe(["fold"])))
    assert folded.peak_bytes <= profiler.memory_timeline(work).peak_bytes
    assert "norm" not in {folded.layers[index] for index in folded.layer_index}


def test_a_model_that_allocates_nothing_is_reported_and_drawn():
    timeline = profiler.memory_timeline(lab.Workload(nn.Identity(), torch.zeros(3), name="nothing"))
    assert (timeline.peak_bytes, timeline.peak_event, timeline.at_peak) == (0, -1, ())
    assert "takes nothing" in timeline.sentence and timeline.table()[0]["kind"] == "nothing"
    assert lab.figure(timeline).png().startswith(b"\x89PNG")


def test_a_failing_model_is_refused():
    with pytest.raises(ForwardError, match="layer '1'"):
        profiler.memory_timeline(
            unchecked(nn.Sequential(nn.ReLU(), nn.Linear(3, 3)), torch.zeros(1, 2))
        )


def test_the_record_reads_as_a_table():
    timeline = stepwise()
    assert list(timeline.frame["alive_bytes"]) == list(timeline.alive_bytes)
    assert "12 kB" in str(timeline)


def test_many_layers_become_a_few_groups_in_their_order():
    layers = [
        "bert.words",
        *(f"bert.layer.{index}.{part}" for index in range(3) for part in "ab"),
        "head",
    ]
    names, group_of = layer_groups(layers, [1, 9, 5, 5, 5, 8, 5, 1])
    split = (
        "bert.layer.0.a",
        "bert.layer.0.b",
        "bert.layer.1",
        "bert.layer.2.a",
        "bert.layer.2.b",
    )
    assert names == ("bert.words", *split, "head"), "the largest branches are split"
    assert group_of == (0, 1, 2, 3, 3, 4, 5, 6)
    names, group_of = layer_groups([f"layer{index}" for index in range(20)], list(range(20)))
    assert len(names) == MAX_GROUPS and names[-1] == OTHERS and group_of.count(MAX_GROUPS - 1) == 14
    assert layer_groups([""], [0]) == (("",), (0,))


def areas(shown):
    return {mark.tone: list(mark.high) for mark in shown.panels[0].marks if isinstance(mark, Area)}


def test_the_curve_is_stacked_by_layers_or_by_category_with_the_weights_below():
    shown = picture(stepwise())
    assert areas(shown) == {"group-0": [4000, 4000, 0, 4000, 4000, 4000],
                            "group-1": [4000, 12000, 8000, 12000, 4000, 4000]}  # fmt: skip
    tips = shown.cursor.tips
    assert shown.cursor.start == 1 and tips.heading[1].startswith("12 kB after ")
    assert tips.line[:2] == ["the model itself takes 4 kB", "wide takes 8 kB"]
    assert tips.line[2] == "the model itself gives back 4 kB"
    assert tips.figures[0].values[1].startswith("8 kB wide activations, 4 kB the model itself")
    timeline = profiler.memory_timeline(
        lab.Workload(nn.Sequential(nn.BatchNorm2d(8), nn.ReLU()), torch.randn(1, 8, 4, 4))
    )
    stacked = areas(picture(timeline, mode="category"))
    assert set(stacked) == {CATEGORIES[kind] for kind in ("weights", "activations", "workspace")}
    assert set(stacked[CATEGORIES["weights"]]) == {timeline.total_weights_bytes}
    highest = max(stacked[CATEGORIES["workspace"]])
    assert highest == timeline.peak_bytes + timeline.total_weights_bytes


def boxes_of(shown):
    """Layer, kind and bytes of each box of the map, with its share of the surface."""
    (boxes, *_) = shown.below[0].panels[0].marks
    surface = [(x2 - x + 1) * (y2 - y + 1) for x, x2, y, y2 in
               zip(boxes.x, boxes.x2, boxes.y, boxes.y2, strict=True)]  # fmt: skip
    held = boxes.tips.figures[0].values
    return list(zip(boxes.key, boxes.tips.line, held, surface, strict=True))


def test_the_map_shows_what_is_alive_at_the_peak_or_at_another_moment():
    timeline = stepwise()
    shown = picture(timeline)
    assert shown.below[0].title == "alive at the peak"
    (first, _, held, large), (second, _, less, small) = boxes_of(shown)
    assert (first, held, second, less) == ("wide", 8000, "", 4000)
    assert large / small == pytest.approx(2, rel=0.02)
    later = picture(timeline, 2)
    assert later.below[0].title.startswith("alive after")
    assert [row[:3] for row in boxes_of(later)] == [("wide", "activations", 8000)]
    assert picture(timeline, 99).below[0].title == "alive at the peak", "of an earlier call"


@given(
    st.lists(st.floats(1e-3, 1e6), min_size=1, max_size=40),
    st.floats(20, 900),
    st.floats(20, 900),
)
def test_a_treemap_fills_its_room_without_overlap_each_box_as_large_as_its_size(sizes, wide, high):
    sizes = sorted(sizes, reverse=True)
    places = squarified(sizes, Place(0, 0, wide, high))
    room, whole = wide * high, sum(sizes)
    for size, place in zip(sizes, places, strict=True):
        assert place.width * place.height == pytest.approx(room * size / whole, rel=1e-6)
        assert -1e-6 <= place.x <= place.x + place.width <= wide * (1 + 1e-6)
        assert -1e-6 <= place.y <= place.y + place.height <= high * (1 + 1e-6)
    for index, (x, y, width, height) in enumerate(places):
        for other in places[index + 1 :]:
            across = min(x + width, other.x + other.width) - max(x, other.x)
            up = min(y + height, other.y + other.height) - max(y, other.y)
            assert min(across, up) <= 1e-6 * max(wide, high)


@given(st.lists(st.floats(1, 1e9), min_size=1, max_size=3))
def test_a_part_of_the_map_is_never_too_low_to_be_named(sizes):
    parts = shares(sizes, 200.0, 22.0)
    assert min(parts) >= 22 - 1e-6 and sum(parts) == pytest.approx(200)


def test_times_past_a_second_are_written_without_exponents():
    timeline = stepwise().model_copy(
        update={"time_ms": (0.0, 1234.5, 1500.0, 1600.0, 1700.0), "duration_ms": 2000.0}
    )
    shown = picture(timeline)
    assert shown.panels[0].marks[-1].texts == ["peak 12 kB at 1230 ms"]
    assert shown.cursor.tips.heading[1] == "12 kB after 1230 ms"
    assert picture(timeline, 2).below[0].title == "alive after 1500 ms"


def test_a_click_on_the_curve_shows_the_map_of_that_moment():
    panel = lab.show(stepwise())
    assert panel.data["layer"]["below"][0]["title"] == "alive at the peak"
    panel.requests = [{"do": "memory_moment", "row": 0, "id": 1}]
    assert panel.data["category"]["below"][0]["title"].startswith("alive after")
    assert panel.served == 1 and panel.data["peak_bytes"] == 12000
    panel.requests = [{"do": "memory_moment", "row": None, "id": 2}]
    assert panel.data["layer"]["below"][0]["title"] == "alive at the peak"
    panel.close()


def test_a_model_of_dicts_has_a_timeline():
    timeline = profiler.memory_timeline(lab.Workload(Mapped(), {"ids": ids()}))
    assert timeline.alive_bytes[-1] > 0, "the answer is still held at the end"
