"""Drawings of profiles: what they show, what a mark says, and that names cannot break them."""

from __future__ import annotations

import math
import re
from xml.etree import ElementTree

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from matplotlib.text import Text

from paifuser_lab.records import (
    Ceiling,
    LayerPair,
    LayerProfile,
    Point,
    Reason,
    Roofline,
    SideBySide,
)
from paifuser_lab.views import figure
from paifuser_lab.views.label_room import Room
from paifuser_lab.views.picture import Names
from paifuser_lab.views.profile import parts
from paifuser_lab.views.roofline import picture as roofline_picture
from paifuser_lab.views.roofline import shown
from paifuser_lab.views.side_by_side import picture as pair_picture
from paifuser_lab.views.style import LIGHT, without_middle
from tests.support.advised import profile, row

CEILING = Ceiling(threads=1, fp32_gflops=100, bf16_gflops=200, int8_gops=400, bandwidth_gbs=30)
BOUNDS = ("compute", "memory", "overhead")


def leaf(layer, ms, verdict="compute", **more):
    known = {"verdict": verdict, "share": ms / 100, "read_bytes": 10**6, "written_bytes": 0}
    return row(layer, ms=ms, **known | more)


def profile_of(*layers, workload="net", **more):
    total = sum(layer.self_ms for layer in layers)
    root = LayerProfile(layer="", kind="Net", total_ms=total, share=1.0)
    return profile(root, *layers, workload=workload, ceiling=CEILING, **more)


def many(count):
    return profile_of(
        *(leaf(f"part{k % 5}.layer{k}", 1.0 + k, BOUNDS[k % 3]) for k in range(count))
    )


def pair(layer, kind, before_ms, after_ms, **more):
    known = {"kind_before": kind, "kind_after": kind, "before_ms": before_ms, "after_ms": after_ms}
    return LayerPair(layer=layer, **known | more)


PAIR = SideBySide(
    before="net",
    after="net · layout",
    before_ms=10,
    after_ms=7,
    speedup=1.4,
    speedup_interval=(1.3, 1.5),
    predicted=Reason(
        topic="layout", sentence="It helps.", step={"layout": {}}, saves_ms=2.5, basis="measured"
    ),
    rows=(
        pair("pool", "MaxPool2d", 5, 1, note="channels-last"),
        pair("conv", "Conv2d", 2, 3),
        pair("norm", "BatchNorm2d", 1, None, kind_after=None, note="folded away"),
        pair("same", "ReLU", 2, 2),
    ),
)
RECORDS = {"Profile": many(20), "Roofline": many(20).roofline, "SideBySide": PAIR}


def words(drawing):
    return [text.get_text() for text in drawing.findobj(Text) if text.get_text()]


def test_no_word_leaves_the_drawing_and_no_two_overlap():
    rows = [
        leaf("stages.0.layers.1.layer.1.convolution.with.a.long.name", 30),
        *(leaf(f"a{k}.b{k}", 1234.5 + k) for k in range(14)),
    ]
    for record in (profile_of(*rows), PAIR):
        drawing = figure(record)
        drawing.draw_without_rendering()  # lays it out
        boxes = [
            text.get_window_extent()
            for text in drawing.findobj(Text)
            if text.get_text() and text.get_visible()
        ]
        boxes = [box for box in boxes if box.width > 1]
        for place, box in enumerate(boxes):
            assert (
                box.x0 >= 0
                and box.x1 <= drawing.bbox.width
                and box.y0 >= 0
                and box.y1 <= drawing.bbox.height
            )
            assert not any(box.overlaps(other.padded(-1)) for other in boxes[place + 1 :])


def test_the_costliest_layers_are_listed_and_the_rest_is_summed():
    shown = words(figure(many(20)))
    assert "part4.layer19" in shown and "part2.layer2" not in shown
    assert "Not shown: 8 more layers, together 36 ms." in figure(many(20)).axes[0].get_title("left")
    assert {"bound by compute: 33%", "bound by memory: 37%", "bound by overhead: 30%"} <= {*shown}
    assert "20 ms · 9.5% · 50% of its roof" in shown


@given(st.lists(st.floats(0.001, 50), min_size=1, max_size=40))
@settings(deadline=None)
def test_the_strip_loses_no_time(times):
    profile = profile_of(
        *(leaf(f"a.b{k % 3}.c{k}", ms, BOUNDS[k % 3]) for k, ms in enumerate(times))
    )
    assert math.isclose(sum(part.total_ms for part in parts(profile)), sum(times), rel_tol=1e-9)


def test_a_large_part_is_shown_as_what_it_is_made_of():
    block = LayerProfile(layer="body", kind="Sequential", self_ms=1, total_ms=91, share=0.91)
    profile = profile_of(block, leaf("body.0", 40), leaf("body.1", 50), leaf("head", 9))
    assert [part.layer for part in parts(profile)] == ["body", "body.0", "body.1", "head"]


def test_a_dot_says_its_name_its_time_and_both_of_its_rates():
    drawing = figure(profile_of(leaf("layer1.0.conv1", 2.0)).roofline)
    (tooltip,) = drawing.hover.values()
    assert tooltip.splitlines() == [
        "layer1.0.conv1",
        "Conv2d · limited by arithmetic",
        "2.00 ms",
        "1.00 ms at the ceiling",
        "50 GFLOP/s",
        "100 FLOP/byte",
        "50% of the ceiling",
    ]


def test_a_layer_in_a_faster_format_is_measured_against_the_roof_of_that_format():
    quick = leaf("conv", 2.0, flops=int(3e8), dtype="int8", roof_ms=0.8)
    profile = profile_of(quick)
    (tooltip,) = figure(profile.roofline).hover.values()
    assert "40% of the ceiling" in tooltip and profile["conv"].roof_share == 0.4
    dots = roofline_picture(profile.roofline).panels[0].marks[-1]
    assert math.isclose(dots.reach[0], 3e8 / 0.8e6)


def test_each_bound_has_its_own_marker_beside_its_colour():
    axes = next(one for one in figure(many(6).roofline).axes if one.get_xscale() == "log")
    dots = {line.get_color(): line.get_marker() for line in axes.lines if line.get_gid()}
    assert dots == {LIGHT.compute: "o", LIGHT.memory: "s", LIGHT.overhead: "^"}


def test_every_measured_roof_is_named_with_its_rate():
    shown = words(figure(many(6).roofline))
    assert {"fp32 100 GFLOP/s", "bf16 200 GFLOP/s", "int8 400 GOP/s", "memory 30 GB/s"} <= set(
        shown
    )
    assert not any(word.startswith("fp16") for word in shown)


def test_dots_too_small_to_matter_are_left_out_and_counted():
    big = Point(layer="big", kind="Conv2d", intensity=10, gflops=50, ms=100)
    dust = Point(layer="dust", kind="ReLU", intensity=0.1, gflops=1e-6, ms=0.001)
    roofline = Roofline(workload="net", machine="a machine", ceiling=CEILING, points=(big, dust))
    assert shown(roofline.points) == [big]
    assert roofline_picture(roofline).note == "surface: time; 1 of the smallest left out"


@given(
    st.lists(st.tuples(st.floats(60, 440), st.floats(60, 340)), min_size=1, max_size=5, unique=True)
)
@settings(max_examples=10, deadline=None)
def test_labels_never_lie_on_each_other_where_there_is_room(dots):
    room = Room((500, 400), [], [], dots)
    boxes = [room.place(90, 14, dot, 4.0) for dot in dots]
    assert not any(
        one.overlaps(other) for place, one in enumerate(boxes) for other in boxes[place + 1 :]
    )
    assert all(45 <= box.x <= 455 and 7 <= box.y <= 393 for box in boxes)


def test_a_name_keeps_off_dots_lines_and_what_else_is_written():
    free = Room((500, 400), [], [], []).place(90, 14, (250, 200), 4.0)
    for taken in ({"names": [free]}, {"lines": [free[:2]]}, {"dots": [free[:2]]}):
        known = {"names": [], "lines": [], "dots": []} | taken
        assert Room((500, 400), **known).place(90, 14, (250, 200), 4.0) != free


def test_dots_of_a_cluster_share_a_name_and_the_small_ones_have_none():
    points = [
        Point(layer=f"a{k}", kind="Conv2d", intensity=10, gflops=50, ms=9 - k) for k in range(3)
    ]
    points.append(Point(layer="far", kind="Conv2d", intensity=0.5, gflops=1, ms=2))
    points.append(Point(layer="little", kind="Conv2d", intensity=90, gflops=1, ms=0.05))
    roofline = Roofline(workload="net", machine="a machine", ceiling=CEILING, points=points)
    (panel,) = roofline_picture(roofline).panels
    (names,) = [mark for mark in panel.marks if isinstance(mark, Names)]
    assert names.texts == ["a0 and 2 near it", "far"]


def test_roofs_that_nearly_coincide_share_a_name():
    near = CEILING.model_copy(update={"fp16_gflops": 195.0})
    drawn = words(figure(Roofline(workload="net", machine="m", ceiling=near, points=())))
    assert "bf16 200 · fp16 195 GFLOP/s" in drawn and "memory 30 GB/s" in drawn


def test_a_dot_is_as_large_as_its_share_of_the_time_and_reaches_up_to_its_roof():
    points = [Point(layer=str(k), kind="Conv2d", intensity=2, gflops=9, ms=ms)
              for k, ms in enumerate([4, 1] + [1] * 30)]  # fmt: skip
    roofline = Roofline(workload="net", machine="m", ceiling=CEILING, points=points)
    dots = roofline_picture(roofline).panels[0].marks[-1]
    assert math.isclose(dots.size[0], 2 * dots.size[1]) and dots.reach[0] == 60


def test_side_by_side_shows_changes_with_their_sign_and_the_promise():
    drawn = pair_picture(PAIR)
    shown = words(figure(PAIR))
    assert {"−4 ms", "+1 ms"} <= set(shown) and "same" not in shown
    assert "predicted −2.500 ms (timed alone), achieved −3.000 ms" in drawn.sentence
    title = figure(PAIR).axes[0].get_title(loc="left")
    assert drawn.sentence in title.replace("\n", " ")
    assert drawn.note.startswith("1 more layer, together")
    assert any("folded away" in tooltip for tooltip in figure(PAIR).hover.values())
    lines, before, after, labels = drawn.panels[0].marks
    assert lines.tone == labels.tone and dict(zip(lines.key, lines.tone, strict=True)) == {
        "pool": "good", "conv": "bad", "norm": "good"
    }  # fmt: skip
    assert len(before.x) + len(after.x) < 2 * len(labels.texts), "one is not in both"
    even = PAIR.model_copy(update={"rows": ()})
    assert pair_picture(even).panels == () and "No layer" in pair_picture(even).note


def test_ids_of_two_drawings_on_a_page_never_meet_and_point_into_their_own():
    pages = [figure(record).svg() for record in RECORDS.values()]
    ids = [set(re.findall(r'\bid="([^"]+)"', page)) for page in pages]
    assert not ids[0] & ids[1] and not ids[1] & ids[2] and not ids[0] & ids[2]
    for page, own in zip(pages, ids, strict=True):
        pointed = set(re.findall(r'(?:url\(#|href="#)([^)"]+)', page))
        assert pointed and pointed <= own


def test_svg_colours_are_the_pages_to_set_and_no_rule_leaks_out():
    for record in RECORDS.values():
        svg = figure(record).svg()
        assert "<style" not in svg and "<metadata" not in svg
        assert "var(--pf-ink, #1a1a1a)" in svg
        left = set(re.findall(r"(?<!url\()#[0-9a-f]{6}\b", re.sub(r"var\([^)]*\)", "", svg)))
        assert not left


@pytest.mark.parametrize(
    "name",
    [
        "<img src=x onerror=alert(1)> &amp; a$\\frac{$",
        "nul\x00 and\nline \ud800",
    ],
)
def test_any_name_is_drawn_and_stays_text(name):
    profile = profile_of(leaf(name, 5), leaf("b", 2), workload=name)
    pair = PAIR.model_copy(
        update={"before": name, "rows": (PAIR.rows[0].model_copy(update={"layer": name}),)}
    )
    for record in (profile, profile.roofline, pair):
        drawing = figure(record)
        assert drawing.png().startswith(b"\x89PNG")
        assert "<img src" not in drawing.svg()
        ElementTree.fromstring(drawing.svg())


def test_a_profile_without_times_is_drawn():
    empty = profile_of(is_interrupted=True)
    assert figure(empty).png().startswith(b"\x89PNG")
    assert figure(empty.roofline).png().startswith(b"\x89PNG")


@settings(max_examples=30, deadline=None)
@given(st.text(), st.integers(5, 60))
def test_a_shortened_name_fits_and_keeps_its_end(text, widest):
    short = without_middle(text, widest)
    assert len(short) <= max(widest, 0) or short == text
    assert short == text if len(text) <= widest else short[-1] == text[-1] and "…" in short
