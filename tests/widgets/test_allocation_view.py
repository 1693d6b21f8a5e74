"""The view of an allocation: the data that the page is sent, the panel that chooses a point, its
recipe and its figure.
"""

from __future__ import annotations

import json
import math

import numpy
import pytest

import paifuser_lab as lab
from paifuser_lab.errors import RecipeError
from paifuser_lab.planner import recipe_of
from paifuser_lab.records import Achieved, Allocation, AllocationPoint
from paifuser_lab.widgets.section import packed

HTML_NAME = "<img src=x onerror=alert(1)>"


def point(name, latency_ms, loss, formats, **more):
    defaults = {
        "around": "fp32",
        "loss_error": 0.01,
        "size_bytes": 100,
        "recipe_steps": ({"precision": {"layers": formats}},),
    }
    return AllocationPoint(
        name=name, formats=formats, latency_ms=latency_ms, loss=loss, **defaults | more
    )


def achieved(**more):
    return Achieved(
        **{
            "latency_ms": 3.0,
            "baseline_ms": 6.0,
            "size_bytes": 110,
            "loss": -0.02,
            "loss_error": 0.03,
        }
        | more
    )


def allocation_of(**more):
    defaults = {
        "points": (
            point("point 1", 1.0, 0.5, {"a": "int8", "b": "int8", "c": "bf16"}),
            point(
                "point 2",
                2.5,
                0.1,
                {"a": "bf16", "b": "int8", "c": "bf16"},
                achieved=achieved(),
                around="bf16",
            ),
            point("point 3", 4.0, 0.0, {"a": "fp32", "b": "fp32", "c": "fp32"}),
        ),
        "uniform": (
            point(
                "all int8",
                0.9,
                0.7,
                {"a": "int8", "b": "int8", "c": "int8"},
                achieved=achieved(loss=None),
            ),
        ),
        "chosen": 1,
    }
    about = {
        "workload": "small",
        "machine": "a machine",
        "threads": 2,
        "unit": "loss",
        "reason": "the best",
        "notes": ("noted",),
    }
    budget = {
        "axis": "latency_ms",
        "limits": {"latency_ms": 3.0},
        "baseline_ms": 4.0,
        "baseline_bytes": 400,
    }
    return Allocation(**about | budget | defaults | more)


ALLOCATION = allocation_of()


def column(data, name):
    return numpy.frombuffer(data["numbers"][name], "<f4").tolist()


def test_an_allocation_is_packed_by_point_with_numbers_as_buffers():
    data = packed(ALLOCATION)
    assert (
        data["name"]
        == ["point 1", "point 2", "point 3", "all int8"]
        == [point.name for point in ALLOCATION.everything]
    )
    assert (data["frontier"], data["planned"], data["axis"], data["limits"]) == (
        3,
        1,
        "latency_ms",
        {"latency_ms": 3.0},
    )
    assert (data["baseline_ms"], data["baseline_bytes"], data["remarks"]) == (
        4.0,
        400,
        ["the best", "noted"],
    )
    assert data["counts"][0] == {"int8": 2, "bf16": 1} and list(data["counts"][1]) == [
        "bf16",
        "int8",
    ], "the most common first"
    assert data["around"] == ["fp32", "bf16", "fp32", "fp32"]
    assert column(data, "x") == column(data, "latency_ms") == pytest.approx([1.0, 2.5, 4.0, 0.9])
    assert column(data, "loss") == pytest.approx([0.5, 0.1, 0.0, 0.7])
    assert column(data, "size_bytes") == [100, 100, 100, 100]


def test_achieved_values_are_scaled_to_the_planned_baseline_and_unknown_ones_are_nan():
    data = packed(ALLOCATION)
    assert column(data, "achieved_x") == pytest.approx(
        [math.nan, 2.0, math.nan, math.nan], nan_ok=True
    ), "half of 4 ms"
    assert column(data, "achieved_latency_ms") == pytest.approx(
        [math.nan, 3.0, math.nan, 3.0], nan_ok=True
    )
    assert column(data, "achieved_loss") == pytest.approx(
        [math.nan, -0.02, math.nan, math.nan], nan_ok=True
    )
    assert column(data, "achieved_metric") == pytest.approx([math.nan] * 4, nan_ok=True)


def test_the_axis_of_a_size_budget_is_bytes():
    data = packed(allocation_of(axis="size_bytes", limits={"size_bytes": 200.0}))
    assert column(data, "x") == [100, 100, 100, 100] and column(data, "achieved_x")[1] == 110


def test_a_loss_that_is_not_finite_is_packed():
    broken = point("all int4", 1.0, math.inf, {"a": "int8"}, achieved=achieved(loss=math.nan))
    data = packed(allocation_of(uniform=(broken,)))
    assert column(data, "loss")[3] == math.inf and math.isnan(column(data, "achieved_loss")[3])
    plain = {name: value for name, value in data.items() if name != "numbers"}
    assert json.dumps(plain, allow_nan=False), "what is not a buffer is plain JSON"


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


def test_the_page_chooses_by_setting_the_trait():
    panel = lab.show(ALLOCATION)
    panel.set_state({"chosen": 3})
    assert panel.chosen == 3 and panel.get_state("chosen") == {"chosen": 3}


@pytest.mark.parametrize("index", [-1, 4])
def test_choosing_a_point_out_of_range_raises_and_changes_nothing(index):
    panel = lab.show(ALLOCATION)
    with pytest.raises(RecipeError, match=f"no point {index}; choose one of 0 to 3"):
        panel.chosen = index
    assert panel.chosen == 1 and panel.point == ALLOCATION.best


def test_the_panel_has_a_static_figure_and_escapes_names():
    panel = lab.show(allocation_of(uniform=(point(HTML_NAME, 0.9, 0.7, {"a": "int8"}),)))
    assert (
        panel.data["name"][-1] == HTML_NAME
        and HTML_NAME not in panel.twin()
        and "<img" in panel.twin()
    )
    assert "point 2" in panel.brief_twin() and repr(panel) == f"AllocationPanel({panel.found!r})"
