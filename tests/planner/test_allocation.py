"""A format for each layer: the exact program, the shortest recipe, savings of neighbours, the plan
and its measured points.
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
from paifuser_lab.errors import PaifuserError, StoppedError
from paifuser_lab.jobs import QUERIES, QueryContext
from paifuser_lab.measure import timing
from paifuser_lab.model.formats import FLOATS
from paifuser_lab.model.weights import weights_bytes, weights_hash
from paifuser_lab.planner import achieved, plan_precision, plan_shares, recipe_of
from paifuser_lab.planner.precision import latency, measured_points
from paifuser_lab.planner.precision.costs import PlanningProblem, _savings
from paifuser_lab.planner.precision.frontier import best_choice, frontier, steps_of, uniform_choices
from paifuser_lab.planner.precision.layers import (
    PlannedLayer,
    graph_of,
    layer_pairs,
    planned_layers,
)
from paifuser_lab.planner.precision.measured_points import agreement
from paifuser_lab.planner.precision.planning import GRADIENTS, GUIDE
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
    ConversionLatency,
    Estimate,
    LatencyTable,
    LayerSensitivity,
    Sensitivity,
)
from tests.support.models import SharedBias, Tied, ids

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


def sensitivity_of(work, values=None, *, formats=ALL[1:], unit="loss", **more):
    """A sensitivity by hand: each format costs a layer the given loss, multiplied by the layer's
    number.
    """
    values = values or {"bf16": 0.001, "int8": 0.01, "int4-weights": 0.1}
    rows = [
        LayerSensitivity(
            layer=layer,
            kind=type(module).__name__,
            parameters=1,
            scores={
                name: {"quadratic": Estimate(value=values[name] * number, error=0.001)}
                for name in formats
            },
        )
        for number, (layer, module) in enumerate(work.model.named_modules(), 1)
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


def planned(work, **options):
    """A plan by the sensitivity above, unless there is another."""
    return plan_precision(work, **{"sensitivity": sensitivity_of(work)} | options)


@pytest.fixture
def pace(monkeypatch):
    """Times by a formula instead of a clock: by format, and 10 ms for each whole model; records the
    timed calls.
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

    for module in (latency, measured_points):
        monkeypatch.setattr(module, "in_turn", in_turn)
    return timed


@pytest.fixture
def own_cache(monkeypatch, tmp_path, cache_of_this_run):
    """An empty cache, but the machine that was already measured."""
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
    savings = [pair for pair in draw(st.lists(saving, max_size=6)) if pair.first != pair.second]
    pairs = [
        (first, second)
        for first, second in itertools.combinations(range(count), 2)
        if options[first].keys() == options[second].keys()
    ]
    equal = draw(st.lists(st.sampled_from(pairs), max_size=2)) if pairs else ()
    return Program(options, savings, draw(cost), equal)


def every_choice(program):
    return [
        program.total(formats)
        for formats in itertools.product(*program.options)
        if all(formats[first] == formats[second] for first, second in program.equal)
    ]


@settings(max_examples=60, deadline=None)
@given(
    programs(),
    st.sampled_from(KINDS),
    st.dictionaries(st.sampled_from(KINDS), st.integers(0, 50)),
    st.sampled_from([1, 1e-6, 3e5]),
)
def test_the_program_finds_the_same_as_an_exhaustive_search(program, minimise, limits, scale):
    options = [
        {name: Cost(*(scale * value for value in cost)) for name, cost in options.items()}
        for options in program.options
    ]
    savings = [saving._replace(ms=scale * saving.ms) for saving in program.savings]
    base = Cost(*(scale * value for value in program.base))
    scaled = Program(options, savings, base, program.equal)
    limits = {name: scale * limit for name, limit in limits.items()}
    allowed = [cost for cost in every_choice(scaled) if is_within(cost, limits)]
    solution = solve(scaled, minimise, limits)
    assert (solution is None) == (not allowed)
    if solution is not None:
        assert is_within(solution.cost, limits)
        assert solution.is_proven
        assert solution.cost == scaled.total(solution.formats)
        assert getattr(solution.cost, minimise) == pytest.approx(
            min(getattr(cost, minimise) for cost in allowed), abs=1e-6 * scale
        )


@settings(max_examples=20, deadline=None)
@given(programs(), st.permutations(KINDS))
def test_among_equal_choices_the_next_cost_decides(program, order):
    solution = solve_in_order(program, order, {})
    assert [getattr(solution.cost, kind) for kind in order] == min(
        [getattr(cost, kind) for kind in order] for cost in every_choice(program)
    )


def test_neighbours_that_save_a_conversion_are_chosen_together():
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
    solution = solve(Program([alone, alone], [pair]), "latency_ms", {})
    assert solution.formats.count("int8") == 1 and solution.cost.latency_ms == 4


def test_an_int8_layer_after_another_saves_its_conversion():
    module, inputs = nn.Linear(4, 4), torch.randn(2, 4)
    layers = [
        PlannedLayer(name, module, None, inputs, 1, name, (name,)) for name in ("first", "second")
    ]
    conversion = ConversionLatency(likeness="second", to_int8_ms=2.0, back_ms=0.5)
    table = LatencyTable(machine="paper", threads=1, torch_version="2", conversions=(conversion,))
    options = [{"fp32": Cost(), "int8": Cost()}] * 2
    assert _savings(layers, options, [("first", "second")], table) == (
        Saving(0, "int8", 1, "int8", 2.0),
    )


def problem(program, around="fp32"):
    layers = tuple(f"l{index}" for index in range(len(program.options)))
    return PlanningProblem(
        around,
        layers,
        (),
        program,
        tuple(dict.fromkeys(options, 0.0) for options in program.options),
    )


@settings(max_examples=15, deadline=None)
@given(programs())
def test_no_point_of_the_frontier_is_beaten_by_any_choice(program):
    points, is_whole = frontier([problem(program)], "latency_ms", {}, [], seconds=60)
    assert is_whole
    for point in points:
        assert not [
            cost
            for cost in every_choice(program)
            if cost.latency_ms <= point.cost.latency_ms and cost.loss < point.cost.loss - 1e-6
        ]
    assert [point.cost.loss for point in points] == sorted(
        (point.cost.loss for point in points), reverse=True
    )


def test_the_best_choice_is_over_all_formats_around_the_layers():
    slow = Program([{"fp32": Cost(0, 4, 4), "int8": Cost(3, 2, 1)}] * 2)
    quick = Program([{"bf16": Cost(1, 1, 2)}] * 2)
    problems = [problem(slow), problem(quick, "bf16")]
    assert best_choice(problems, ("loss",), {"latency_ms": 3}).problem.around == "bf16"
    assert best_choice(problems, ("loss",), {"size_bytes": 3}).solution.formats == ("int8", "int8")
    assert {
        name: choice.cost.latency_ms
        for name, choice in uniform_choices(problems, ("fp32", "bf16", "int8")).items()
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
def test_a_choice_becomes_the_shortest_recipe(formats, around, expected):
    assert steps_of(formats, around) == (() if expected is None else ({"precision": expected},))


def formats_of(model, layers):
    """The actual format of each layer of a model."""
    names = {dtype: name for name, dtype in FLOATS.items()}
    modules = {layer: model.get_submodule(layer) for layer in layers}
    return {
        layer: module.format if isinstance(module, QuantizedLayer) else names[module.weight.dtype]
        for layer, module in modules.items()
    }


@pytest.mark.parametrize("around", ["fp32", "bf16"])
def test_the_recipe_gives_each_layer_its_format(around):
    work, layers = block(), ("stem", "body.0", "body.3", "head")
    for chosen in itertools.islice(itertools.product(ALL, repeat=4), 0, None, 17):
        formats = dict(zip(layers, chosen, strict=True))
        model = lab.apply(work, Recipe(list(steps_of(formats, around)))).module
        assert formats_of(model, layers) == formats
        norms = [module for module in model.modules() if isinstance(module, nn.BatchNorm2d)]
        assert {norm.weight.dtype for norm in norms} <= {FLOATS[around]}


# Neighbours and layers


@pytest.mark.parametrize(
    "chosen",
    [
        ("stem", "body.0"),
        ("body.0", "body.3"),
        ("stem", "body.3"),
        ("stem", "body.0", "body.3", "head"),
    ],
)
def test_the_predicted_number_of_conversions_is_saved(chosen):
    work = block()
    pairs = [
        pair
        for pair in layer_pairs(work, ["stem", "body.0", "body.3", "head"])
        if set(pair) <= set(chosen)
    ]
    model = lab.apply(
        work, Recipe([{"precision": {"layers": dict.fromkeys(chosen, "int8")}}])
    ).model
    with count_conversions() as seen, torch.no_grad():
        work.inputs.clone()(model)
    assert seen["to int8"] == len(chosen) - len(pairs)
    assert not seen["back"]


def test_equal_layers_have_one_likeness_and_a_batch_norm_belongs_to_its_layer():
    work = block()
    layers = {layer.layer: layer for layer in planned_layers(work, graph_of(work))}
    assert list(layers) == ["stem", "body.0", "body.3", "head"]
    assert layers["body.0"].likeness == layers["body.3"].likeness != layers["stem"].likeness
    assert isinstance(layers["body.0"].norm, nn.BatchNorm2d) and layers["stem"].norm is None
    assert "2×8×10×10 float32" in layers["body.0"].likeness


def test_a_layer_with_a_shared_weight_keeps_the_format_around_it(pace, own_cache):
    work = Workload(Tied(), ids(), name="tied")
    allocation = planned(work, size_bytes=10**6, formats=("fp32", "int8"))
    assert {point.formats["table"] for point in allocation.everything} == {"fp32"}
    assert "int8" in {point.formats["body"] for point in allocation.everything}


def test_layers_that_share_a_weight_share_its_format_and_its_bytes(pace, own_cache):
    work = Workload(Tied(), ids(), name="tied")
    names = ("fp32", "bf16", "int4-weights")
    (allocation,) = plan_shares(work, [1.0], sensitivity=sensitivity_of(work), formats=names)
    seen = set()
    for index, point in enumerate(allocation.points):
        model = lab.apply(work, recipe_of(allocation, index)).module
        assert point.size_bytes == weights_bytes(model)
        seen.add((point.formats["table"], point.formats["head"]))
    assert len(seen) > 1 and all(table == head for table, head in seen)


def test_a_bias_that_another_module_has_too_bars_no_integers(pace, own_cache):
    work = Workload(SharedBias(), ids(), name="tied")
    names = ("fp32", "bf16", "int4-weights")
    allocation = planned(work, size_bytes=1e6, formats=names)
    points = allocation.everything
    assert {"int4-weights"} in [{one.formats["table"], one.formats["head"]} for one in points]
    for one in points:
        lab.apply(work, Recipe(one.recipe_steps))


def test_a_format_that_one_of_them_was_not_timed_in_is_none_of_the_others(
    pace, own_cache, monkeypatch
):
    find = LatencyTable.find

    def forgetful(self, likeness, name, around):
        is_head = "out_features=7" in likeness
        return None if is_head and name == "int4-weights" else find(self, likeness, name, around)

    monkeypatch.setattr(LatencyTable, "find", forgetful)
    work = Workload(Tied(), ids(), name="tied")
    names = ("fp32", "int4-weights")
    allocation = planned(work, size_bytes=1e6, formats=names)
    points = allocation.everything
    assert {(one.formats["table"], one.formats["head"]) for one in points} == {("fp32", "fp32")}
    assert {one.formats["body"] for one in points} == set(names)


def test_an_embedding_of_few_bits_can_be_among_16_bit_layers(pace, own_cache):
    torch.manual_seed(0)
    work = Workload(
        nn.Sequential(nn.Embedding(9, 8), nn.LayerNorm(8), nn.Linear(8, 4)), ids(), name="words"
    )
    allocation = planned(work, size_bytes=600, formats=("fp32", "bf16", "int4-weights"))
    for index in range(len(allocation.points)):
        lab.apply(work, recipe_of(allocation, index))
    assert any(point.formats["0"] == "int4-weights" for point in allocation.everything)


# The table


def test_timings_are_cached_and_only_new_ones_are_measured(pace, own_cache):
    work = block()
    planned(work, latency_ms=50, formats=("fp32", "int8"))
    assert sum(("int8", "fp32") in calls for calls in pace) == 3, "one of two equal layers"
    pace.clear()
    planned(work, latency_ms=50, formats=("fp32", "int8"))
    assert not [calls for calls in pace if ("fp32", "fp32") in calls]
    planned(work, latency_ms=50, formats=("fp32", "int4-weights"))
    assert sum(("int4-weights", "fp32") in calls for calls in pace) == 3
    (file,) = own_cache.glob("latency-*.json")
    file.write_text("{")
    pace.clear()
    planned(work, latency_ms=50, formats=("fp32", "int8"))
    assert sum(("int8", "fp32") in calls for calls in pace) == 3, "a damaged file is measured again"


def test_a_layer_alone_takes_time_and_calls_take_turns():
    order = []
    times = timing.in_turn(
        {name: lambda name=name: order.append(name) for name in "ab"}, torch.device("cpu"), 0.0
    )
    assert all(ms >= 0 for ms in times.values())
    rounds = [set(order[start : start + 2]) for start in range(0, len(order), 2)]
    assert len(rounds) == timing.FEWEST + timing.WARM and all(
        round_calls == {"a", "b"} for round_calls in rounds
    )


def test_implausible_times_are_reported_and_not_cached(pace, own_cache, monkeypatch):
    work = block()
    monkeypatch.setitem(PACE, "fp32", 40.0)
    allocation = planned(work, latency_ms=50, formats=("fp32", "int8"))
    assert allocation.threads == 1
    assert any("the layers alone took 16.0 times" in note for note in allocation.notes)
    assert not list(own_cache.glob("latency-*.json"))


@pytest.mark.parametrize(
    ("one_thread_ms", "two_threads_ms", "counts"),
    [(10.0, 9.0, (1,)), (10.0, 5.0, (2, 1)), (5.0, 10.0, (1,))],
)
def test_more_threads_are_used_where_they_are_faster(one_thread_ms, two_threads_ms, counts):
    costs = {
        count: {"fp32": Cost(0.0, ms, 1)} for count, ms in ((1, one_thread_ms), (2, two_threads_ms))
    }
    assert latency.ModelTimes(costs).counts == counts


# The plan


def test_a_plan_keeps_its_budget_and_its_recipe_has_the_predicted_size(pace, own_cache):
    work = block()
    before = weights_hash(work.model)
    allocation = planned(work, latency_ms=9.25)
    assert allocation.best.latency_ms <= 9.25
    assert allocation.best.loss == min(
        point.loss for point in allocation.everything if point.latency_ms <= 9.25
    )
    assert [point.name for point in allocation.uniform] == [f"all {name}" for name in ALL]
    times = [point.latency_ms for point in allocation.points]
    losses = [point.loss for point in allocation.points]
    assert times == sorted(times) and losses == sorted(losses, reverse=True)
    for index, point in enumerate(allocation.points):
        variant = lab.apply(work, recipe_of(allocation, index))
        assert formats_of(variant.module, point.formats) == point.formats
        assert lab.Recipe.from_text(recipe_of(allocation, index).to_text()) == recipe_of(
            allocation, index
        )
    measured = achieved(work, allocation, seconds=0.0)
    assert all(
        point.achieved.size_bytes == point.size_bytes
        for point in measured.everything
        if point.achieved
    )
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
    allocation = planned(work, **limits)
    assert allocation.axis == axis and allocation.limits == limits
    assert all(getattr(allocation.best, name) <= limit for name, limit in limits.items())
    allowed = [
        point
        for point in allocation.everything
        if all(getattr(point, name) <= limit for name, limit in limits.items())
    ]
    assert getattr(allocation.best, kind) == min(getattr(point, kind) for point in allowed)


@pytest.mark.parametrize("of", ["size_bytes", "latency_ms"])
def test_a_ladder_of_shares_has_the_plan_of_each_budget(of, pace, own_cache):
    work, shares = block(), (0.95, 0.9)
    plans = plan_shares(work, shares, of=of, sensitivity=sensitivity_of(work))
    for plan, share in zip(plans, shares, strict=True):
        whole = {"size_bytes": plan.baseline_bytes, "latency_ms": plan.baseline_ms}[of]
        assert plan.limits == {of: pytest.approx(share * whole)}
        alone = planned(work, **plan.limits)
        assert plan.best.formats == alone.best.formats and plan.axis == of
    assert plans[0].best.loss <= plans[1].best.loss
    with pytest.raises(PaifuserError, match="no share of 'loss'"):
        plan_shares(work, of="loss")
    with pytest.raises(PaifuserError, match="size_bytes=-1 is not a budget"):
        plan_shares(work, [-1])


def test_the_loss_of_the_whole_model_in_a_float_format_is_measured(pace, own_cache):
    work = block()
    allocation = planned(work, latency_ms=50, formats=("fp32", "bf16"))
    model = lab.apply(work, Recipe([{"precision": {"default": "bf16"}}])).model
    with torch.no_grad():
        rises = torch.stack(
            [
                F.cross_entropy(model(x), y) - F.cross_entropy(work.model(x), y)
                for x, y in work.train
            ]
        )
    error = float(rises.std(correction=1) / math.sqrt(len(rises)))
    assert allocation.uniform[1].name == "all bf16" and allocation.uniform[1].loss > 0
    assert allocation.uniform[1].loss == pytest.approx(max(float(rises.mean()), error), rel=1e-3)


def test_a_uniform_choice_is_taken_where_nothing_is_better_and_is_named(pace, own_cache):
    work = block()
    sensitivity = sensitivity_of(work, dict.fromkeys(ALL, -0.5))
    allocation = planned(work, latency_ms=8.1, sensitivity=sensitivity, formats=("fp32", "int8"))
    assert set(allocation.formats.values()) == {"int8"}
    assert allocation.reason.startswith("all layers in int8")
    assert allocation.best.loss == pytest.approx(4 * 0.001), "each counts as its standard error"
    assert "below zero or their standard error count as that error: 4" in allocation.notes[0]
    mixed = planned(work, latency_ms=9.4, formats=("fp32", "int8"))
    assert mixed.reason.startswith("a mixture") and len(set(mixed.formats.values())) == 2


def test_without_a_sensitivity_it_is_estimated_first(own_cache):
    work = block()
    allocation = plan_precision(work, size_bytes=4000, formats=("fp32", "int8"), seconds=0.5)
    assert allocation.best.size_bytes <= 4000 and allocation.unit == "loss"
    assert allocation.baseline_ms > 0 and all(
        point.latency_ms != 0 for point in allocation.everything
    )


@pytest.mark.parametrize(("seconds", "asked"), [(60.0, [GUIDE]), (1e-6, [GUIDE, GRADIENTS])])
def test_gradients_guide_where_second_derivatives_would_take_longer_than_the_time(
    pace, own_cache, monkeypatch, seconds, asked
):
    used = []

    def recorded(work, **options):
        used.extend(options["methods"])
        return lab.sensitivity(work, **options)

    monkeypatch.setattr("paifuser_lab.planner.precision.planning.estimate_sensitivity", recorded)
    monkeypatch.setattr("paifuser_lab.planner.precision.costs._whole_model_loss", lambda *of: 0.25)
    work, names = block(), ("fp32", "int4-weights")
    allocation = plan_precision(work, size_bytes=4000, formats=names, seconds=seconds)
    assert used == asked
    if asked[-1] == GRADIENTS:
        (point,) = (point for point in allocation.uniform if point.name == "all int4-weights")
        assert point.loss == pytest.approx(0.25)


def test_the_reported_smallest_size_can_be_reached_and_not_a_byte_less(pace, own_cache):
    work = block()
    with pytest.raises(
        PaifuserError, match="size_bytes=10 cannot be kept: the smallest reachable is"
    ) as caught:
        planned(work, size_bytes=10)
    least = int(re.search(r"is ([\d,]+) bytes", str(caught.value))[1].replace(",", ""))
    assert planned(work, size_bytes=least).best.size_bytes == least
    with pytest.raises(PaifuserError, match="cannot be kept"):
        planned(work, size_bytes=least - 1)
    with pytest.raises(
        PaifuserError, match=r"latency_ms=0\.001 cannot be kept: the smallest reachable is .* ms"
    ):
        planned(work, latency_ms=0.001)
    with pytest.raises(PaifuserError, match="together with"):
        planned(work, latency_ms=9.0, size_bytes=least)


BAD = {
    "no budget": ({}, "no budget was given; give latency_ms"),
    "below zero": ({"latency_ms": -1}, "latency_ms=-1 is not a budget"),
    "not a number": ({"loss": math.nan}, "loss=nan is not a budget"),
    "an unknown format": (
        {"latency_ms": 9, "formats": ("fp32", "int9")},
        "'int9' is not a format .*int8",
    ),
    "a format of too low precision": (
        {"latency_ms": 9, "formats": ("int3-weights",)},
        "'int3-weights' is not a format",
    ),
    "nothing to choose": ({"latency_ms": 9, "formats": ("fp32",)}, "nothing to choose from"),
}


@pytest.mark.parametrize("case", BAD)
def test_an_impossible_plan_is_refused(case):
    work = block()
    options, message = BAD[case]
    with pytest.raises(PaifuserError, match=message):
        planned(work, **options)


def test_a_sensitivity_that_does_not_fit_is_refused(pace, own_cache):
    work = block()
    sensitivity = sensitivity_of(work)
    incomplete = sensitivity.model_copy(update={"rows": sensitivity.rows[:-1]})
    with pytest.raises(PaifuserError, match="does not know layer 'head'"):
        plan_precision(work, latency_ms=9, sensitivity=incomplete)
    with pytest.raises(PaifuserError, match="no estimates for bf16"):
        plan_precision(
            work,
            latency_ms=9,
            sensitivity=sensitivity_of(work, formats=("int8",)),
            formats=("bf16", "int8"),
        )
    with pytest.raises(PaifuserError, match="estimated with other weights"):
        plan_precision(work, latency_ms=9, sensitivity=sensitivity_of(work, weights_hash="0" * 64))
    with pytest.raises(PaifuserError, match="in float16 already"):
        plan_precision(
            Workload(nn.Linear(2, 2).half(), torch.ones(1, 2).half()),
            latency_ms=9,
            sensitivity=sensitivity,
        )


# Measured points, the record and the drawing


def test_points_are_measured_beside_their_predictions(pace, own_cache):
    work = block()
    allocation = planned(work, size_bytes=4000)
    measured = achieved(work, allocation, points=[0], seconds=0.0)
    assert [index for index, point in enumerate(measured.points) if point.achieved] == [0]
    fp32 = next(point for point in measured.uniform if point.name == "all fp32")
    assert (
        fp32.achieved.loss == 0.0 and fp32.achieved.latency_ms == fp32.achieved.baseline_ms == 10.0
    )
    smallest = measured.points[0].achieved
    model = lab.apply(work, recipe_of(allocation, 0)).model
    with torch.no_grad():
        rises = [
            float(F.cross_entropy(model(x), y) - F.cross_entropy(work.model(x), y))
            for x, y in work.test
        ]
    assert smallest.loss == pytest.approx(sum(rises) / 3, abs=1e-6)
    assert measured.loss_agreement.points == 5 and measured.latency_agreement.points == 5
    with pytest.raises(PaifuserError, match="has no point 99"):
        achieved(work, allocation, points=[99])
    with pytest.raises(PaifuserError, match="was made for block"):
        achieved(Workload(Block(), torch.randn(2, 3, 10, 10), name="other"), allocation)
    with pytest.raises(PaifuserError, match="has no point -1"):
        recipe_of(allocation, -1)


def test_measuring_points_ends_when_it_is_stopped(pace, own_cache):
    work = block()
    plan = planned(work, size_bytes=4000)
    with pytest.raises(StoppedError):
        achieved(work, plan, points=[0], uniform=False, should_stop=lambda: True)
    context = QueryContext(work, 0.0, lambda: True, {"allocation": plan}, {"place": 0})
    with pytest.raises(StoppedError):
        list(QUERIES["achieved"].find(context))


def test_without_a_loss_the_error_of_the_output_is_reported(pace, own_cache):
    work = block(loss=None, train=None, test=None)
    allocation = planned(
        work, size_bytes=4000, sensitivity=sensitivity_of(work, unit="output error")
    )
    measured = achieved(work, allocation, points=[0], seconds=0.0)
    assert 0 < measured.points[0].achieved.loss < 1
    assert any("no loss" in note for note in allocation.notes)


def test_agreement_is_the_rank_correlation_and_the_median_ratio():
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


def test_an_allocation_is_shown_and_drawn(pace, own_cache):
    work = block()
    allocation = achieved(work, planned(work, latency_ms=9.4), seconds=0.0)
    assert "chosen" in str(allocation) and "rank correlation" in str(allocation)
    assert list(allocation.frame.index) == [point.name for point in allocation.everything]
    drawing = lab.figure(allocation)
    words = {text.get_text() for text in drawing.axes[0].texts}
    assert {"all int8", "all fp32"} <= words
    assert len(drawing.hover) == len(allocation.everything)
    legend = {text.get_text() for text in drawing.axes[0].get_legend().get_texts()}
    assert {"achieved", "best for what was asked"} <= legend
