"""Schedules: the share falls geometrically from round to round, with the steps between repeated in
each round.
"""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn

import paifuser_lab as lab
from paifuser_lab.errors import RecipeError
from tests.support.models import Small, images
from tests.support.prune_zoo.architecture import scattered


def options(recipe: lab.Recipe, kind: str = "prune") -> list[dict]:
    return [step.options for step in recipe if step.kind == kind]


def test_a_ratio_is_the_same_share_of_the_rest_in_each_round():
    recipe = lab.gradually(
        {"ratio": 0.75, "layers": {"conv": 0.19}, "seed": 3},
        rounds=2,
        workload="small",
        limit={"metric_drop": 0.2},
    )
    each = {"ratio": 0.5, "layers": {"conv": 0.1}, "seed": 3}
    assert options(recipe) == [each | {"round_to": 1}, each]
    assert recipe.workload == "small" and recipe.limit.metric_drop == 0.2


@pytest.mark.parametrize(
    ("width", "prune", "widths"),
    [
        (16, {"ratio": 0.5}, [13, 11, 9, 8]),
        (16, {"ratio": 0.5, "round_to": 8}, [13, 11, 9, 8]),
        (64, {"ratio": 0.2}, [61, 58, 55, 48]),
    ],
    ids=str,
)
def test_a_ratio_is_reached_where_a_round_removes_less_than_half_a_multiple(width, prune, widths):
    model = scattered(nn.Sequential(nn.Linear(4, width), nn.ReLU(), nn.Linear(width, 3))).eval()
    work = lab.Workload(model, images(2, 2)[:, 0].reshape(2, 4))
    recipe = lab.gradually(prune)
    cuts = [lab.apply(work, recipe[:count]).module for count in (1, 2, 3, 4)]
    assert [module[0].out_features for module in cuts] == widths


@pytest.mark.parametrize("rounds", [1, 2, 3, 4])
@pytest.mark.parametrize("kind", ["linear", "convolutional"])
def test_a_target_is_reached_where_a_multiple_would_pass_the_next_rounds(kind, rounds):
    layers = [nn.Linear(4, 16), nn.ReLU(), nn.Linear(16, 3)]
    inputs = images(2, 2)[:, 0].reshape(2, 4)
    if kind == "convolutional":
        inputs = images()[:, :1]
        layers = [
            nn.Conv2d(1, 16, 3),
            nn.ReLU(),
            nn.Conv2d(16, 32, 3),
            nn.AdaptiveAvgPool2d(1),
            nn.Flatten(),
            nn.Linear(32, 10),
        ]
    work = lab.Workload(scattered(nn.Sequential(*layers).eval()), inputs)
    small = lab.apply(work, lab.gradually({"to": {"parameters": 0.5}}, rounds=rounds)).module
    before, after = (sum(w.numel() for w in m.parameters()) for m in (work.model, small))
    assert after <= 0.5 * before
    assert options(lab.gradually({"to": {"latency": 0.5}}, rounds=2))[0].keys() == {"to"}


@settings(max_examples=50, deadline=None, derandomize=True)
@given(share=st.floats(0.02, 0.95), rounds=st.integers(1, 8))
def test_the_rounds_together_reach_the_share_in_equal_steps(share, rounds):
    targets = [
        prune["to"]["flops"]
        for prune in options(lab.gradually({"to": {"flops": share}}, rounds=rounds))
    ]
    assert targets[-1] == share and len(targets) == rounds
    steps = [after / before for before, after in zip([1.0, *targets], targets, strict=False)]
    assert all(step == pytest.approx(steps[0], rel=1e-3) for step in steps)
    left = 1.0
    for prune in options(lab.gradually({"ratio": 1 - share}, rounds=rounds)):
        left *= 1 - prune["ratio"]
    assert left == pytest.approx(share, rel=1e-3)


def test_the_rounds_stay_separate_when_the_recipe_is_saved_and_applied(tmp_path):
    model = scattered(nn.Sequential(nn.Linear(4, 64), nn.ReLU(), nn.Linear(64, 3))).eval()
    work = lab.Workload(model, images(2, 2)[:, 0].reshape(2, 4))
    recipe = lab.gradually({"ratio": 0.75, "round_to": 1, "importance": "magnitude"}, rounds=2)
    assert lab.Recipe.load(recipe.save(tmp_path / "recipe.yaml")) == recipe
    variant = lab.apply(work, recipe)
    assert [step.kind for step in variant.recipe] == ["prune", "prune"] and variant.module[
        0
    ].out_features == 16
    assert lab.apply(work, recipe[:1]).module[0].out_features == 32


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"prune": {"ratio": 0.5}, "rounds": 0}, "rounds=0 is not possible"),
        ({"prune": {"ratio": 0.5}, "rounds": 1.5}, "rounds=1.5 is not possible"),
        ({"prune": {"ratio": 1.5}}, r"step 'prune', ratio = 1\.5"),
        ({"prune": {}}, "give a ratio"),
        (
            {"prune": {"ratio": 0.5}, "between": "distil"},
            "There is no step 'distil'; did you mean 'distill'",
        ),
        (
            {"prune": {"ratio": 0.5}, "between": {"backend": {"name": "eager"}}},
            "'backend' stands before other steps",
        ),
    ],
    ids=str,
)
def test_an_invalid_schedule_is_refused(arguments, message):
    with pytest.raises(RecipeError, match=message):
        lab.gradually(**arguments)


def test_a_step_added_afterwards_changes_one_round_only():
    """`with_step` joins neighbours of a kind; a schedule's rounds are joined with an added step one
    at a time, never with each other.
    """
    recipe = lab.gradually({"ratio": 0.75}, "fold", rounds=2).with_step({"prune": {"ratio": 0.1}})
    assert [prune["ratio"] for prune in options(recipe)] == [0.1, 0.5]
    assert isinstance(lab.apply(lab.Workload(Small(), images()), recipe[:1]).module, Small)


def test_a_target_falls_geometrically_to_the_requested_share():
    recipe = lab.gradually({"to": {"parameters": 0.0625}}, "layout", rounds=4)
    assert [prune["to"]["parameters"] for prune in options(recipe)] == [0.5, 0.25, 0.125, 0.0625]
    assert [step.kind for step in recipe] == ["prune", "layout"] * 4
