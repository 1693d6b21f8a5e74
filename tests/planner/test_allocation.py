"""A format for each layer: the exact program, the shortest recipe, what neighbours spare each
other, the plan and its proof.
"""

from __future__ import annotations

import itertools
import math
import re

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import nn
from torch.nn import functional as F

import paifuser_lab as lab
from paifuser_lab import Recipe, Workload
from paifuser_lab.errors import PaifuserError
from paifuser_lab.formats import FLOATS
from paifuser_lab.measure import timing
from paifuser_lab.model.weights import weights_hash
from paifuser_lab.planner import achieved, plan_precision, recipe_of
from paifuser_lab.planner.precision import latency, measured_points, whole_model
from paifuser_lab.planner.precision.costs import PlanningProblem, _savings
from paifuser_lab.planner.precision.frontier import best_choice, frontier, steps_of, uniform_choices
from paifuser_lab.planner.precision.layer_pairs import LayerPair, layer_pairs
from paifuser_lab.planner.precision.layers import PlannedLayer, graph_of, planned_layers
from paifuser_lab.planner.precision.measured_points import agreement
from paifuser_lab.planner.precision.program import (
    Cost,
    Program,
    Saving,
    is_within,
    solve,
    solve_in_order,
)
from paifuser_lab.quantization import QuantizedLayer, count_conversions
from paifuser_lab.records import (
    Allocation,
    ConversionLatency,
    Estimate,
    LatencyTable,
    LayerSensitivity,
    Record,
    Sensitivity,
)
from tests.support.models import Tied, ids

ALL = ("fp32", "bf16", "int8", "int4-weights")
KINDS = ("loss", "latency_ms", "size_bytes")
PACE = {"fp32": 1.0, "bf16": 0.8, "int8": 0.5, "int4-weights": 1.5}
CONVERSION = {"to int8": 0.125, "back": 0.125}


class Block(nn.Module):
    """Two convolutions with batch-norm and a shortcut, as in a ResNet, and a head."""

    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 3, padding=1)
        self.body = nn.Sequential(
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
            nn.ReLU(),
            nn.Conv2d(8, 8, 3, padding=1),
            nn.BatchNorm2d(8),
        )
        self.head = nn.Linear(8, 4)

    def forward(self, images):
        images = F.relu(self.stem(images))
        return self.head(F.relu(self.body(images) + images).mean((2, 3)))


def block(**more):
    torch.manual_seed(0)
    batches = [(torch.randn(6, 3, 10, 10), torch.randint(0, 4, (6,))) for _ in range(3)]
    known = {"loss": F.cross_entropy, "train": batches, "test": batches, "name": "block"} | more
    return Workload(Block().eval(), torch.randn(2, 3, 10, 10), **known)


def judged(work, values=None, *, formats=ALL[1:], unit="loss", **more):
    """A sensitivity by hand: each format costs a layer as said, or a little more the fewer its
    bits.
    """
    values = values or {"bf16": 0.001, "int8": 0.01, "int4-weights": 0.1}
    rows = [
        LayerSensitivity(
            layer=name,
            kind=type(module).__name__,
            parameters=1,
            scores={
                one: {"quadratic": Estimate(value=values[one] * planned, error=0.001)}
                for one in formats
            },
        )
        for planned, (name, module) in enumerate(work.model.named_modules(), 1)
        if isinstance(module, nn.Conv2d | nn.Linear | nn.Embedding)
    ]
    return Sensitivity(
        workload=work.name,
        machine="here",
        unit=unit,
        formats=formats,
        method="quadratic",
        examples=1,
        rows=tuple(rows),
        **more,
    )


@pytest.fixture
def pace(monkeypatch):
    """Times by a formula instead of a clock: by format, and a second for each whole model; what was
    timed is noted.
    """
    timed = []

    def in_turn(calls, device, seconds):
        for call in calls.values():
            with torch.no_grad():
                call()
        timed.append(list(calls))
        return {
            name: PACE[name[0]] if isinstance(name, tuple) else CONVERSION.get(name, 10.0)
            for name in calls
        }

    for module in (latency, whole_model, measured_points):
        monkeypatch.setattr(module, "in_turn", in_turn)
    return timed


@pytest.fixture
def own_cache(monkeypatch, tmp_path, cache_of_this_run):
    """No rows of other tests, but the machine as it is known."""
    lab.hardware()
    known = lab.hardware()
    monkeypatch.setenv("PAIFUSER_CACHE", str(tmp_path))
    monkeypatch.setattr(latency, "hardware", lambda: known)
    monkeypatch.setattr("paifuser_lab.planner.precision.planning.hardware", lambda: known)
    return tmp_path


# The program


@st.composite
def programs(draw):
    count = draw(st.integers(1, 8))
    formats = "abc" if count <= 5 else "ab"
    cost = st.builds(Cost, st.integers(0, 9), st.integers(0, 9), st.integers(0, 9))
    options = [
        draw(st.dictionaries(st.sampled_from(formats), cost, min_size=1, max_size=len(formats)))
        for _ in range(count)
    ]
    saving = st.builds(
        Saving,
        st.integers(0, count - 1),
        st.sampled_from(formats),
        st.integers(0, count - 1),
        st.sampled_from(formats),
        st.integers(-4, 4),
    )
    savings = [one for one in draw(st.lists(saving, max_size=6)) if one.first != one.second]
    return Program(options, savings, draw(cost))


def every_choice(program):
    return [program.total(formats) for formats in itertools.product(*program.options)]


@settings(max_examples=60, deadline=None)
@given(
    programs(),
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(KINDS), st.integers(0, 50)),
    st.sampled_from([1, 1e-6, 3e5]),
)
def test_the_program_finds_what_trying_everything_finds(program, minimise, limits, scale):
    options = [
        {name: Cost(*(scale * one for one in cost)) for name, cost in options.items()}
        for options in program.options
    ]
    savings = [one._replace(ms=scale * one.ms) for one in program.savings]
    scaled = Program(options, savings, Cost(*(scale * one for one in program.base)))
    limits = {name: scale * limit for name, limit in limits.items()}
    allowed = [cost for cost in every_choice(scaled) if is_within(cost, limits)]
    found = solve(scaled, minimise, limits)
    assert (found is None) == (not allowed)
    if found is not None:
        assert is_within(found.cost, limits)
        assert found.is_proven
        assert found.cost == scaled.total(found.formats)
        assert getattr(found.cost, minimise) == pytest.approx(
            min(getattr(one, minimise) for one in allowed), abs=1e-6 * scale
        )


@settings(max_examples=20, deadline=None)
@given(programs(), st.permutations(KINDS))
def test_among_equals_the_next_regard_decides(program, order):
    found = solve_in_order(program, order, {})
    assert [getattr(found.cost, kind) for kind in order] == min(
        [getattr(cost, kind) for kind in order] for cost in every_choice(program)
    )


def test_neighbours_that_spare_a_conversion_are_taken_together():
    alone = {"fp32": Cost(0, 0, 0), "int8": Cost(1, 0.5, 0)}
    pair = [Saving(0, "int8", 1, "int8", 2.0)]
    assert solve(Program([alone, alone]), "latency_ms", {}).formats == ("fp32", "fp32")
    assert solve(Program([alone, alone], pair), "latency_ms", {}).formats == ("int8", "int8")
    assert (
        solve(
            Program([alone, alone], [pair[0]._replace(ms=-2.0)], Cost(0, 5, 0)),
            "loss",
            {"latency_ms": 5},
        ).cost.loss
        == 0
    )


def test_a_pair_that_costs_time_is_not_taken_without_its_cost():
    alone = {"fp32": Cost(0, 3, 0), "int8": Cost(0, 1, 0)}
    pair = Saving(0, "int8", 1, "int8", -5.0)
    found = solve(Program([alone, alone], [pair]), "latency_ms", {})
    assert found.formats.count("int8") == 1 and found.cost.latency_ms == 4


@pytest.mark.parametrize(("others", "saved"), [(0, 2.0), (1, 1.5), (6, -1.0)])
def test_each_other_reader_of_what_stays_in_int8_pays_a_conversion_back(others, saved):
    module, given = nn.Linear(4, 4), torch.randn(2, 4)
    found = [PlannedLayer(name, module, None, given, 1, name) for name in ("first", "second")]
    conversion = ConversionLatency(likeness="second", to_int8_ms=2.0, back_ms=0.5)
    table = LatencyTable(machine="paper", threads=1, torch_version="2", conversions=(conversion,))
    options = [{"fp32": Cost(), "int8": Cost()}] * 2
    assert _savings(found, options, [LayerPair("first", "second", others)], table) == (
        Saving(0, "int8", 1, "int8", saved),
    )


def problem(program, around="fp32"):
    layers = tuple(f"l{planned}" for planned in range(len(program.options)))
    return PlanningProblem(
        around, layers, (), program, tuple(dict.fromkeys(one, 0.0) for one in program.options)
    )


@settings(max_examples=15, deadline=None)
@given(programs())
def test_no_point_of_the_frontier_is_beaten_by_any_choice(program):
    points, is_whole = frontier([problem(program)], "latency_ms", {}, [], seconds=60)
    assert is_whole
    for point in points:
        assert not [
            one
            for one in every_choice(program)
            if one.latency_ms <= point.cost.latency_ms and one.loss < point.cost.loss - 1e-6
        ]
    assert [one.cost.loss for one in points] == sorted(
        (one.cost.loss for one in points), reverse=True
    )


def test_the_best_is_looked_for_in_every_surrounding_and_uniform_choices_are_known():
    slow = Program([{"fp32": Cost(0, 4, 4), "int8": Cost(3, 2, 1)}] * 2)
    quick = Program([{"bf16": Cost(1, 1, 2)}] * 2)
    problems = [problem(slow), problem(quick, "bf16")]
    assert best_choice(problems, ("loss",), {"latency_ms": 3}).problem.around == "bf16"
    assert best_choice(problems, ("loss",), {"size_bytes": 3}).solution.formats == ("int8", "int8")
    assert {
        name: one.cost.latency_ms
        for name, one in uniform_choices(problems, ("fp32", "bf16", "int8")).items()
    } == {
        "fp32": 8,
        "bf16": 2,
        "int8": 4,
    }


# The recipe


@pytest.mark.parametrize(
    ("formats", "around", "expected"),
    [
        ({"a": "fp32", "b": "fp32"}, "fp32", None),
        (
            {"a": "int8", "b": "int8", "c": "fp32"},
            "fp32",
            {"default": "int8", "layers": {"c": "fp32"}},
        ),
        ({"a": "fp32", "b": "fp32", "c": "int8"}, "fp32", {"layers": {"c": "int8"}}),
        (
            {"a": "fp32", "b": "fp32", "c.0": "int8", "c.1": "int8"},
            "fp32",
            {"layers": {"c.*": "int8"}},
        ),
        (
            {"a": "fp32", "b": "fp32", "c.0": "bf16", "c.1": "bf16"},
            "fp32",
            {"layers": {"c.0": "bf16", "c.1": "bf16"}},
        ),
        (
            {"a": "bf16", "b": "bf16", "c": "int8"},
            "bf16",
            {"default": "bf16", "layers": {"c": "int8"}},
        ),
        (
            {"a": "int8", "b": "int8", "c": "int8"},
            "bf16",
            {"default": "bf16", "layers": {"a": "int8", "b": "int8", "c": "int8"}},
        ),
        (
            {"c.0": "int8", "c.1.x": "int8", "c.1.y": "bf16", "a": "fp32", "b": "fp32"},
            "fp32",
            {"layers": {"c.0": "int8", "c.1.x": "int8", "c.1.y": "bf16"}},
        ),
    ],
)
def test_a_choice_is_spelled_as_the_shortest_recipe(formats, around, expected):
    assert steps_of(formats, around) == (() if expected is None else ({"precision": expected},))


def formats_of(model, layers):
    """What each layer of a model really is in."""
    names = {dtype: name for name, dtype in FLOATS.items()}
    modules = {layer: model.get_submodule(layer) for layer in layers}
    return {
        layer: one.format if isinstance(one, QuantizedLayer) else names[one.weight.dtype]
        for layer, one in modules.items()
    }


@pytest.mark.parametrize("around", ["fp32", "bf16"])
def test_the_recipe_gives_each_layer_its_format(around):
    work, layers = block(), ("stem", "body.0", "body.3", "head")
    for chosen in itertools.islice(itertools.product(ALL, repeat=4), 0, None, 17):
        formats = dict(zip(layers, chosen, strict=True))
        model = lab.apply(work, Recipe(list(steps_of(formats, around)))).module
        assert formats_of(model, layers) == formats
        between = [one for one in model.modules() if isinstance(one, nn.BatchNorm2d)]
        assert {one.weight.dtype for one in between} <= {FLOATS[around]}


# Neighbours and places


@pytest.mark.parametrize(
    "chosen",
    [
        ("stem", "body.0"),
        ("body.0", "body.3"),
        ("stem", "body.3"),
        ("stem", "body.0", "body.3", "head"),
    ],
)
def test_as_many_conversions_are_spared_as_the_model_really_spares(chosen):
    work = block()
    found = [
        one
        for one in layer_pairs(work, ["stem", "body.0", "body.3", "head"])
        if {one.giver, one.consumer} <= set(chosen)
    ]
    model = lab.apply(
        work, Recipe([{"precision": {"layers": dict.fromkeys(chosen, "int8")}}])
    ).model
    with count_conversions() as seen, torch.no_grad():
        work.inputs.clone()(model)
    assert seen["to int8"] == len(chosen) - len(found)
    assert seen["back"] == sum(one.others for one in found)


def test_equal_layers_are_alike_and_a_batch_norm_belongs_to_its_layer():
    work = block()
    found = {one.layer: one for one in planned_layers(work, graph_of(work))}
    assert list(found) == ["stem", "body.0", "body.3", "head"]
    assert found["body.0"].likeness == found["body.3"].likeness != found["stem"].likeness
    assert isinstance(found["body.0"].norm, nn.BatchNorm2d) and found["stem"].norm is None
    assert "2×8×10×10 float32" in found["body.0"].likeness


def test_a_layer_whose_weight_is_shared_keeps_what_is_around_it(pace, own_cache):
    work = Workload(Tied(), ids(), name="tied")
    found = plan_precision(
        work, size_bytes=10**6, sensitivity=judged(work), formats=("fp32", "int8")
    )
    assert {point.formats["table"] for point in found.everything} == {"fp32"}
    assert "int8" in {point.formats["body"] for point in found.everything}


def test_an_embedding_of_few_bits_may_stand_among_16_bits(pace, own_cache):
    torch.manual_seed(0)
    work = Workload(
        nn.Sequential(nn.Embedding(9, 8), nn.LayerNorm(8), nn.Linear(8, 4)), ids(), name="words"
    )
    found = plan_precision(
        work, size_bytes=600, sensitivity=judged(work), formats=("fp32", "bf16", "int4-weights")
    )
    for planned in range(len(found.points)):
        lab.apply(work, recipe_of(found, planned))
    assert any(point.formats["0"] == "int4-weights" for point in found.everything)


# The table


def test_what_was_timed_is_kept_and_only_what_is_new_is_timed_again(pace, own_cache):
    work = block()
    plan_precision(work, latency_ms=50, sensitivity=judged(work), formats=("fp32", "int8"))
    assert sum(("int8", "fp32") in one for one in pace) == 3, "of two equal layers one"
    pace.clear()
    plan_precision(work, latency_ms=50, sensitivity=judged(work), formats=("fp32", "int8"))
    assert not [one for one in pace if ("fp32", "fp32") in one]
    plan_precision(work, latency_ms=50, sensitivity=judged(work), formats=("fp32", "int4-weights"))
    assert sum(("int4-weights", "fp32") in one for one in pace) == 3
    (file,) = own_cache.glob("latency-*.json")
    file.write_text("{")
    pace.clear()
    plan_precision(work, latency_ms=50, sensitivity=judged(work), formats=("fp32", "int8"))
    assert sum(("int8", "fp32") in one for one in pace) == 3, "a damaged file is measured anew"


def test_a_layer_alone_takes_time_and_calls_take_turns():
    order = []
    taken = timing.in_turn(
        {name: lambda name=name: order.append(name) for name in "ab"}, torch.device("cpu"), 0.0
    )
    assert all(ms >= 0 for ms in taken.values())
    rounds = [set(order[planned : planned + 2]) for planned in range(0, len(order), 2)]
    assert len(rounds) == timing.FEWEST + timing.WARM and all(one == {"a", "b"} for one in rounds)


def test_times_that_cannot_be_true_are_reported_and_not_kept(pace, own_cache, monkeypatch):
    work = block()
    monkeypatch.setitem(PACE, "fp32", 40.0)
    found = plan_precision(work, latency_ms=50, sensitivity=judged(work), formats=("fp32", "int8"))
    assert found.threads == 1
    assert any("the layers alone took 16.0 times" in note for note in found.notes)
    assert not list(own_cache.glob("latency-*.json"))


@pytest.mark.parametrize(
    ("one", "two", "counts"), [(10.0, 9.0, (1,)), (10.0, 5.0, (2, 1)), (5.0, 10.0, (1,))]
)
def test_more_threads_are_taken_where_they_pay(one, two, counts):
    costs = {count: {"fp32": Cost(0.0, ms, 1)} for count, ms in ((1, one), (2, two))}
    assert whole_model.ModelTimes(costs).counts == counts


# The plan


def test_a_plan_keeps_its_budget_and_its_recipe_has_the_size_foretold(pace, own_cache):
    work = block()
    before = weights_hash(work.model)
    found = plan_precision(work, latency_ms=9.25, sensitivity=judged(work))
    assert found.best.latency_ms <= 9.25
    assert found.best.loss == min(
        point.loss for point in found.everything if point.latency_ms <= 9.25
    )
    assert [one.name for one in found.uniform] == [f"all {name}" for name in ALL]
    times, losses = [one.latency_ms for one in found.points], [one.loss for one in found.points]
    assert times == sorted(times) and losses == sorted(losses, reverse=True)
    for index, point in enumerate(found.points):
        variant = lab.apply(work, recipe_of(found, index))
        assert formats_of(variant.module, point.formats) == point.formats
        assert lab.Recipe.from_text(recipe_of(found, index).to_text()) == recipe_of(found, index)
    real = achieved(work, found, seconds=0.0)
    assert all(one.achieved.size_bytes == one.size_bytes for one in real.everything if one.achieved)
    assert weights_hash(work.model) == before


@pytest.mark.parametrize(
    ("limits", "axis", "kind"),
    [
        ({"latency_ms": 9.45}, "latency_ms", "loss"),
        ({"size_bytes": 4000}, "size_bytes", "loss"),
        ({"latency_ms": 10.5, "size_bytes": 4000}, "latency_ms", "loss"),
        ({"loss": 0.05}, "latency_ms", "latency_ms"),
        ({"loss": 0.05, "latency_ms": 10.5}, "size_bytes", "size_bytes"),
    ],
)
def test_every_kind_of_budget_is_kept_and_nothing_within_it_is_better(
    limits, axis, kind, pace, own_cache
):
    work = block()
    found = plan_precision(work, sensitivity=judged(work), **limits)
    assert found.axis == axis and found.limits == limits
    assert all(getattr(found.best, name) <= limit for name, limit in limits.items())
    allowed = [
        one
        for one in found.everything
        if all(getattr(one, name) <= limit for name, limit in limits.items())
    ]
    assert getattr(found.best, kind) == min(getattr(one, kind) for one in allowed)


def test_what_the_whole_model_loses_in_a_float_format_is_measured(pace, own_cache):
    work = block()
    found = plan_precision(work, latency_ms=50, sensitivity=judged(work), formats=("fp32", "bf16"))
    model = lab.apply(work, Recipe([{"precision": {"default": "bf16"}}])).model
    with torch.no_grad():
        rises = torch.stack(
            [
                F.cross_entropy(model(x), y) - F.cross_entropy(work.model(x), y)
                for x, y in work.train
            ]
        )
    error = float(rises.std(correction=1) / math.sqrt(len(rises)))
    assert found.uniform[1].name == "all bf16" and found.uniform[1].loss > 0
    assert found.uniform[1].loss == pytest.approx(max(float(rises.mean()), error), rel=1e-3)


def test_a_uniform_choice_is_taken_where_nothing_is_better_and_is_named(pace, own_cache):
    work = block()
    nothing_lost = judged(work, dict.fromkeys(ALL, -0.5))
    found = plan_precision(work, latency_ms=8.1, sensitivity=nothing_lost, formats=("fp32", "int8"))
    assert set(found.formats.values()) == {"int8"}
    assert found.reason.startswith("all layers in int8")
    assert found.best.loss == pytest.approx(4 * 0.001), "each counts as its standard error"
    assert "below zero or their standard error count as that error: 4" in found.notes[0]
    mixed = plan_precision(work, latency_ms=9.4, sensitivity=judged(work), formats=("fp32", "int8"))
    assert mixed.reason.startswith("a mixture") and len(set(mixed.formats.values())) == 2


def test_without_a_sensitivity_the_layers_are_judged_first(own_cache):
    work = block()
    found = plan_precision(work, size_bytes=4000, formats=("fp32", "int8"), seconds=0.5)
    assert found.best.size_bytes <= 4000 and found.unit == "loss"
    assert found.baseline_ms > 0 and all(one.latency_ms != 0 for one in found.everything)


def test_the_smallest_that_is_named_can_be_reached_and_not_a_byte_less(pace, own_cache):
    work = block()
    known = judged(work)
    with pytest.raises(
        PaifuserError, match="size_bytes=10 cannot be kept: the smallest reachable is"
    ) as caught:
        plan_precision(work, size_bytes=10, sensitivity=known)
    least = int(re.search(r"is ([\d,]+) bytes", str(caught.value))[1].replace(",", ""))
    assert plan_precision(work, size_bytes=least, sensitivity=known).best.size_bytes == least
    with pytest.raises(PaifuserError, match="cannot be kept"):
        plan_precision(work, size_bytes=least - 1, sensitivity=known)
    with pytest.raises(
        PaifuserError, match=r"latency_ms=0\.001 cannot be kept: the smallest reachable is .* ms"
    ):
        plan_precision(work, latency_ms=0.001, sensitivity=known)
    with pytest.raises(PaifuserError, match="together with"):
        plan_precision(work, latency_ms=9.0, size_bytes=least, sensitivity=known)


BAD = {
    "no budget": ({}, "no budget was given; give latency_ms"),
    "below zero": ({"latency_ms": -1}, "latency_ms=-1 is no budget"),
    "not a number": ({"loss": math.nan}, "loss=nan is no budget"),
    "an unknown format": (
        {"latency_ms": 9, "formats": ("fp32", "int9")},
        "'int9' is no format .*int8",
    ),
    "a format of too lower precision": (
        {"latency_ms": 9, "formats": ("int3-weights",)},
        "'int3-weights' is no format",
    ),
    "nothing to choose": ({"latency_ms": 9, "formats": ("fp32",)}, "nothing to choose from"),
}


@pytest.mark.parametrize("case", BAD)
def test_what_cannot_be_planned_is_refused_in_one_sentence(case):
    work = block()
    options, message = BAD[case]
    with pytest.raises(PaifuserError, match=message):
        plan_precision(work, sensitivity=judged(work), **options)


def test_a_sensitivity_that_does_not_fit_is_refused(pace, own_cache):
    work = block()
    known = judged(work)
    without = known.model_copy(update={"rows": known.rows[:-1]})
    with pytest.raises(PaifuserError, match="does not know layer 'head'"):
        plan_precision(work, latency_ms=9, sensitivity=without)
    with pytest.raises(PaifuserError, match="not asked about bf16"):
        plan_precision(
            work,
            latency_ms=9,
            sensitivity=judged(work, formats=("int8",)),
            formats=("bf16", "int8"),
        )
    with pytest.raises(PaifuserError, match="estimated with other weights"):
        plan_precision(work, latency_ms=9, sensitivity=judged(work, weights_hash="0" * 64))
    with pytest.raises(PaifuserError, match="in float16 already"):
        plan_precision(
            Workload(nn.Linear(2, 2).half(), torch.ones(1, 2).half()),
            latency_ms=9,
            sensitivity=known,
        )


# The proof, the record and the drawing


def test_what_points_do_is_measured_beside_what_was_predicted(pace, own_cache):
    work = block()
    found = plan_precision(work, size_bytes=4000, sensitivity=judged(work))
    real = achieved(work, found, points=[0], seconds=0.0)
    assert [planned for planned, one in enumerate(real.points) if one.achieved] == [0]
    fp32 = next(one for one in real.uniform if one.name == "all fp32")
    assert (
        fp32.achieved.loss == 0.0 and fp32.achieved.latency_ms == fp32.achieved.baseline_ms == 10.0
    )
    smallest = real.points[0].achieved
    model = lab.apply(work, recipe_of(found, 0)).model
    with torch.no_grad():
        rises = [
            float(F.cross_entropy(model(x), y) - F.cross_entropy(work.model(x), y))
            for x, y in work.test
        ]
    assert smallest.loss == pytest.approx(sum(rises) / 3, abs=1e-6)
    assert real.loss_agreement.points == 5 and real.latency_agreement.points == 5
    with pytest.raises(PaifuserError, match="has no point 99"):
        achieved(work, found, points=[99])
    with pytest.raises(PaifuserError, match="was made for block"):
        achieved(Workload(Block(), torch.randn(2, 3, 10, 10), name="other"), found)
    with pytest.raises(PaifuserError, match="has no point -1"):
        recipe_of(found, -1)


def test_without_a_loss_the_error_of_the_output_is_reported(pace, own_cache):
    work = block(loss=None, train=None, test=None)
    found = plan_precision(work, size_bytes=4000, sensitivity=judged(work, unit="output error"))
    real = achieved(work, found, points=[0], seconds=0.0)
    assert 0 < real.points[0].achieved.loss < 1
    assert any("no loss" in note for note in found.notes)


def test_predictions_agree_by_order_and_by_their_middle_ratio():
    assert agreement([(1.0, 2.0), (2.0, 4.0), (3.0, 9.0)]).model_dump() == {
        "points": 3,
        "ratio": 2.0,
        "rank": pytest.approx(1.0),
    }
    assert agreement([(0.0, 1.0), (0.0, 2.0)]).model_dump() == {
        "points": 2,
        "ratio": None,
        "rank": None,
    }


def test_an_allocation_is_saved_shown_and_drawn(pace, own_cache, tmp_path):
    work = block(name="<b>block</b>")
    found = achieved(
        work, plan_precision(work, latency_ms=9.4, sensitivity=judged(work)), seconds=0.0
    )
    assert (
        Allocation.load(found.save(tmp_path / "a.json"))
        == found
        == Record.load(tmp_path / "a.json")
    )
    assert "chosen" in str(found) and "rank correlation" in str(found)
    assert "<b>block" not in found._repr_html_()
    assert list(found.frame.index) == [one.name for one in found.everything]
    for dark in (False, True):
        drawing = lab.figure(found, dark=dark)
        words = {text.get_text() for text in drawing.axes[0].texts}
        assert {"chosen", "all int8", "all fp32"} <= words
        assert len(drawing.hover) == len(found.everything)
    assert "achieved" in {text.get_text() for text in lab.figure(found).legends[0].get_texts()}
