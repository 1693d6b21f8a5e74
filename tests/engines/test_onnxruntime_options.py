"""ONNX Runtime's session options as options of a recipe, and the race between them."""

from __future__ import annotations

from typing import Any

import onnxruntime
import pytest
import torch

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.errors import RecipeError
from paifuser_lab.steps.backend import Backend
from paifuser_lab.variant.comparison import CHANGES
from tests.support.models import Small, images

LEVELS = onnxruntime.GraphOptimizationLevel


def session_of(monkeypatch: pytest.MonkeyPatch, **options: Any) -> Any:
    """The session options that a backend with these options opens its session with."""
    opened: list[Any] = []
    original = onnxruntime.InferenceSession

    def opening(path: str, settings: Any, **more: Any) -> Any:
        opened.append(settings)
        return original(path, settings, **more)

    monkeypatch.setattr(onnxruntime, "InferenceSession", opening)
    torch.manual_seed(0)
    work = Workload(Small(), images(1))
    variant = lab.apply(work, Recipe([{"backend": {"name": "onnxruntime", **options}}]))
    with torch.no_grad():
        output = variant.model(*work.inputs.args)
    torch.testing.assert_close(output, work.output(), rtol=1e-4, atol=1e-5)
    return opened[0]


@pytest.mark.parametrize(
    ("options", "attribute", "value"),
    [
        ({}, "graph_optimization_level", LEVELS.ORT_ENABLE_ALL),
        ({"optimization": "extended"}, "graph_optimization_level", LEVELS.ORT_ENABLE_EXTENDED),
        ({"optimization": "basic"}, "graph_optimization_level", LEVELS.ORT_ENABLE_BASIC),
        ({"optimization": "none"}, "graph_optimization_level", LEVELS.ORT_DISABLE_ALL),
        ({}, "execution_mode", onnxruntime.ExecutionMode.ORT_SEQUENTIAL),
        ({"parallel": True}, "execution_mode", onnxruntime.ExecutionMode.ORT_PARALLEL),
        ({"parallel": True, "threads": 3}, "inter_op_num_threads", 3),
        ({}, "enable_cpu_mem_arena", True),
        ({"arena": False}, "enable_cpu_mem_arena", False),
    ],
)
def test_an_option_reaches_the_session(options, attribute, value, monkeypatch):
    assert getattr(session_of(monkeypatch, **options), attribute) == value


@pytest.mark.parametrize(
    "option", [{"optimization": "basic"}, {"parallel": True}, {"arena": False}], ids=str
)
def test_an_option_of_onnx_runtime_is_refused_of_another_engine(option):
    (name,) = option
    default = Backend.model_fields[name].default
    assert Recipe([{"backend": {"name": "eager", name: default}}])
    with pytest.raises(RecipeError, match=f"{name} belongs to onnxruntime, not to eager"):
        Recipe([{"backend": {"name": "eager", **option}}])


def test_the_options_are_part_of_a_step_s_label_and_file():
    options = {"name": "onnxruntime", "optimization": "basic", "parallel": True, "arena": False}
    recipe = Recipe([{"backend": options}])
    assert recipe.steps[0].label == "onnxruntime optimised basic parallel without arena"
    assert Recipe.from_text(recipe.to_text()).steps == recipe.steps


def test_the_settings_are_timed_in_turn_after_the_recipe_s_own_steps():
    torch.manual_seed(0)
    work = Workload(Small(), images(1))
    recipe = Recipe(["fold", {"backend": {"name": "eager"}}])
    found = lab.compare_settings(work, recipe, threads=2, rounds=1, seconds=0.01)
    rows = [row for row in found.rows if row.name in {*CHANGES, "one thread"}]
    assert len(rows) == len(CHANGES) + 1
    assert not [row.failure for row in rows if row.failure]
    assert {row.threads for row in rows} == {1, 2}
