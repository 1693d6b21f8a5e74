"""The view of an allocation: the data that the page is sent, the panel that chooses a point, its
recipe and its figure.
"""

from __future__ import annotations

import math

import pytest

import paifuser_lab as lab
from paifuser_lab.errors import RecipeError
from paifuser_lab.planner import recipe_of
from paifuser_lab.records import Achieved
from paifuser_lab.views.allocation import compared_rows, picture
from paifuser_lab.views.picture import Dots, Line, Names, Rules
from paifuser_lab.widgets.section import packed
from tests.support import drawn


def point(name, latency_ms, loss, *formats, **more):
    known = {"latency_ms": latency_ms, "loss": loss, "loss_error": 0.01, "size_bytes": 100}
    return drawn.point(name, dict(zip("abc", formats, strict=False)), **known | more)


DONE = Achieved(latency_ms=3.0, baseline_ms=6.0, size_bytes=110, loss=-0.02, loss_error=0.03)
POINTS = (
    point("point 1", 1.0, 0.5, "int8", "int8", "bf16"),
    point("point 2", 2.5, 0.1, "bf16", "int8", "bf16", achieved=DONE, around="bf16"),
    point("point 3", 4.0, 0.0, "fp32", "fp32", "fp32"),
)
UNTOLD = DONE.model_copy(update={"loss": None})


def allocation_of(**more):
    known = {
        "workload": "small",
        "points": POINTS,
        "uniform": (point("all int8", 0.9, 0.7, "int8", "int8", "int8", achieved=UNTOLD),),
        "chosen": 1,
        "reason": "the best",
        "notes": ("noted",),
        "limits": {"latency_ms": 3.0},
        "baseline_ms": 4.0,
        "baseline_bytes": 400,
    }
    return drawn.changed("Allocation", **known | more)


ALLOCATION = allocation_of()
NAMES = ["point 1", "point 2", "point 3", "all int8"]


def dots(allocation, tone="main"):
    """The dots that are listed, or those of one other tone."""
    marks = [mark for mark in picture(allocation).panels[0].marks if isinstance(mark, Dots)]
    return next(mark for mark in marks if (bool(mark.key) if tone == "main" else mark.tone == tone))


def test_every_point_is_a_dot_at_its_latency_and_loss_the_frontier_first():
    listed = dots(ALLOCATION)
    assert list(listed.key) == ["0", "1", "2", "3"]
    assert list(listed.shape) == ["disc", "disc", "disc", "diamond"]
    assert list(listed.x) == [1.0, 2.5, 4.0, 0.9] and list(listed.y)[:2] == [0.5, 0.1]
    assert list(listed.y)[3] == 0.7 and listed.tips.heading == NAMES


def test_the_names_of_uniform_choices_go_with_their_diamonds():
    names = next(mark for mark in picture(ALLOCATION).panels[0].marks if isinstance(mark, Names))
    listed = dots(ALLOCATION)
    soft = [key for key, tone in zip(listed.key, listed.tone, strict=True) if tone == "soft"]
    assert list(names.key) == soft == ["3"]


def test_a_loss_of_zero_or_less_stands_in_a_band_below_the_axis_s_ticks():
    panel = picture(ALLOCATION).panels[0]
    axis, none = panel.y, dots(ALLOCATION).y[2]
    assert axis.low < none < axis.ticks[1] and axis.names[0] == "≤ 0" and axis.ticks[0] == none
    assert dots(ALLOCATION, "bad").y == [none], "so does a measured one that fell"
    small = allocation_of(uniform=(point("tiny", 0.9, 1e-12, "int8"),))
    assert picture(small).panels[0].y.names[0].startswith("< ")


def test_what_was_achieved_is_scaled_to_the_planned_baseline_and_linked_to_its_point():
    assert list(dots(ALLOCATION, "bad").x) == [2.0], "half of 4 ms; without a loss no ring"
    link = next(mark for mark in picture(ALLOCATION).panels[0].marks if isinstance(mark, Line))
    assert list(link.x[:2]) == [2.5, 2.0]
    rows = {row["name"]: row for row in compared_rows(ALLOCATION, ALLOCATION.points[1])}
    assert rows["latency"] == {
        "name": "latency", "predicted": "2.50 ms", "achieved": "2.00 ms", "error": "−20.0%"
    }  # fmt: skip
    assert (rows["speed-up"]["predicted"], rows["speed-up"]["achieved"]) == ("1.60 ×", "2.00 ×")
    assert rows["rise of the loss"]["achieved"] == "−0.02 ± 0.03"
    assert rows["rise of the loss"]["error"] == "−0.12" and rows["size"]["error"] == "+10.0%"
    plain = compared_rows(ALLOCATION, ALLOCATION.points[0])
    assert {row["achieved"] for row in plain} == {""}


def test_the_best_point_has_a_ring_and_a_budget_is_a_line_where_it_is_near():
    panel = picture(ALLOCATION).panels[0]
    assert (list(dots(ALLOCATION, "good").x), list(dots(ALLOCATION, "good").y)) == ([2.5], [0.1])
    rules = {text: at for mark in panel.marks if isinstance(mark, Rules)
             for text, at in zip(mark.names, mark.at, strict=True)}  # fmt: skip
    assert rules == {"as it is 4.00 ms": 4.0, "at most 3.00 ms": 3.0}
    far = picture(allocation_of(limits={"latency_ms": 300.0})).panels[0]
    assert far.x.high < 10
    loss = picture(allocation_of(limits={"loss": 0.2})).panels[0]
    assert any(mark.names == ["at most 0.2"] for mark in loss.marks if isinstance(mark, Rules))


def test_the_axis_of_a_size_budget_is_bytes():
    sizes = allocation_of(axis="size_bytes", limits={"size_bytes": 200.0})
    assert list(dots(sizes).x) == [100, 100, 100, 100] and list(dots(sizes, "bad").x) == [110]
    assert picture(sizes).panels[0].x.names[-1].endswith("B")


def test_a_loss_that_is_not_finite_is_drawn_at_the_top():
    done = DONE.model_copy(update={"loss": math.nan})
    broken = point("all int4", 1.0, math.inf, "int8", achieved=done)
    panel = picture(allocation_of(uniform=(broken,))).panels[0]
    assert dots(allocation_of(uniform=(broken,))).y[3] == panel.y.high


def test_the_page_is_sent_what_stands_beside_a_point():
    data = packed(ALLOCATION)
    assert data["best"] == 1 and [point["name"] for point in data["points"]] == NAMES
    assert data["points"][0]["formats"] == [("int8", "2 layers"), ("bf16", "1 layer")]
    assert [point["around"] for point in data["points"]] == ["", "bf16 between them", "", ""]
    assert (data["picture"]["sentence"], data["picture"]["note"]) == ("the best", "noted")


def test_the_panel_starts_with_the_planned_point_and_its_recipe_follows_the_choice():
    panel = lab.show(ALLOCATION)
    assert (panel.view, panel.chosen, panel.point) == ("allocation", 1, ALLOCATION.best)
    assert panel.recipe == recipe_of(ALLOCATION) and panel.recipe.workload == "small"
    panel.chosen = 0
    assert panel.recipe == recipe_of(ALLOCATION, 0) != recipe_of(ALLOCATION)
    panel.chosen = 3
    assert panel.point.name == "all int8" and panel.recipe[0].options["layers"] == {
        "a": "int8",
        "b": "int8",
        "c": "int8",
    }


@pytest.mark.parametrize("index", [-1, 4])
def test_choosing_a_point_out_of_range_raises_and_changes_nothing(index):
    panel = lab.show(ALLOCATION)
    with pytest.raises(RecipeError, match=f"no point {index}; choose one of 0 to 3"):
        panel.chosen = index
    assert panel.chosen == 1 and panel.point == ALLOCATION.best
